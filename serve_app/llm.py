"""The deployment that Leadtime scales: one engine a replica."""

import contextlib
from collections.abc import AsyncGenerator

from ray import serve

from serve_app.engine import Chunk, Engine, GenerationRequest
from serve_app.engine_metrics import EngineMetrics
from serve_app.settings import AppSettings
from serve_app.standin import StandInEngine


class LLM:
    """Its constructor returns only when the engine is loaded and warm: RUNNING means fast.

    Serve drains before it stops a replica: streams that run get `graceful_shutdown_timeout_s`.
    """

    engine: Engine

    async def __init__(self, settings: AppSettings) -> None:  # type: ignore[misc]
        self.engine = engine_of(settings, serve.get_replica_context().replica_id.unique_id)
        await self.engine.start()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer; closing the stream aborts the request in the engine."""
        async with contextlib.aclosing(self.engine.generate(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def check_health(self) -> None:
        await self.engine.check_health()

    async def __del__(self) -> None:
        await self.engine.stop()


def engine_of(settings: AppSettings, replica_id: str) -> Engine:
    """The engine that the settings name."""
    engine = settings.engine
    log_stats = EngineMetrics(settings.model, engine.max_model_len, replica_id)
    return StandInEngine(engine.config(), log_stats)
