"""The deployment that Leadtime scales: one engine a replica."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator

import ray
from ray import serve

from serve_app.engine import Chunk, Engine, EngineDead, GenerationRequest
from serve_app.engine_metrics import EngineMetrics
from serve_app.settings import AppSettings, InvalidArgs, StandInSettings
from serve_app.standin import StandInEngine

log = logging.getLogger("ray.serve")

TELL_CLIENTS_S = 1.0
"""How long a replica with a dead engine lives on, so that its open streams get their error."""


class LLM:
    """Its constructor returns only when the engine is loaded and warm: RUNNING means fast.

    Serve drains before it stops a replica: streams that run get `graceful_shutdown_timeout_s`.
    A replica whose engine died ends itself: it would fail requests so quickly that the router
    took it for the least busy, until Serve's third failed health check.
    """

    engine: Engine

    async def __init__(self, settings: AppSettings) -> None:  # type: ignore[misc]
        self._ending: asyncio.Task[None] | None = None
        self.engine = engine_of(settings, serve.get_replica_context().replica_id.unique_id)
        await self.engine.start()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer; closing the stream aborts the request in the engine."""
        try:
            async with contextlib.aclosing(self.engine.generate(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except EngineDead:
            self._end_if_dead()
            raise

    async def check_health(self) -> None:
        try:
            await self.engine.check_health()
        except EngineDead:
            self._end()
            raise

    async def __del__(self) -> None:
        await self.engine.stop()

    def _end_if_dead(self) -> None:
        """A single request may fail alone; the engine's own word counts."""
        self._checking = asyncio.create_task(self._quietly_check())

    async def _quietly_check(self) -> None:
        with contextlib.suppress(EngineDead):
            await self.check_health()

    def _end(self) -> None:
        if self._ending is None:
            log.error("the engine is dead: this replica ends, for Serve to start another")
            self._ending = asyncio.create_task(self._end_soon())

    async def _end_soon(self) -> None:
        await asyncio.sleep(TELL_CLIENTS_S)
        try:
            await asyncio.wait_for(self.engine.stop(), timeout=5.0)
        finally:
            os._exit(1)


def engine_of(settings: AppSettings, replica_id: str) -> Engine:
    """The engine that the settings name."""
    engine = settings.engine
    if isinstance(engine, StandInSettings):
        log_stats = EngineMetrics(settings.model, engine.max_model_len, replica_id)
        return StandInEngine(engine.config(), log_stats)
    must_hold_gpus(settings.gpus)
    # Only here: vLLM is not installed where the stand-in runs, and takes seconds to import.
    from serve_app.vllm_engine import VllmEngine

    return VllmEngine(engine, settings.model, settings.gpus)


def must_hold_gpus(gpus: int) -> None:
    """InvalidArgs unless Ray gave this replica the GPUs that its engine is to use."""
    held = len(ray.get_runtime_context().get_accelerator_ids().get("GPU", ()))
    if held < gpus:
        raise InvalidArgs(
            f"gpus: {gpus}, but Ray gave this replica {held}: ray_actor_options under "
            f"deployments: replaces the application's own, so it must say num_gpus: {gpus} too"
        )
