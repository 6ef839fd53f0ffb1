"""RAG as one deployment: a replica takes a request through all stages before its slot is free.

The same encoder, index and engine as `serve_app.rag`, and what most first versions look like.
`import_path: tests.benchmarks.app.serial:build`, the same `args`.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray import serve

from serve_app.app import ROUTER
from serve_app.engine import Chunk, GenerationRequest
from serve_app.ingress import Ingress, app
from serve_app.llm import engine_of
from serve_app.rag.encoder import SentenceEncoder, shipped_model_dir
from serve_app.rag.index import PassageIndex, index_documents
from serve_app.rag.ingress import with_passages
from serve_app.rag.settings import RagSettings
from serve_app.settings import parse


class Serial:
    """Embeds, searches and generates in one replica, as many requests at once as slots."""

    async def __init__(  # type: ignore[misc]
        self, settings: RagSettings, model_dir: Path, index: PassageIndex
    ) -> None:
        self._encoder = SentenceEncoder(model_dir, settings.encoder.threads)
        self._index = index
        self._settings = settings.index
        replica_id = serve.get_replica_context().replica_id.unique_id
        self._engine = engine_of(settings.llm(), replica_id)
        await self._engine.start()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        question = request.messages[-1].content
        [vector] = await asyncio.to_thread(self._encoder.encode, [question])
        hits = self._index.nearest(vector, self._settings.passages)
        found = [hit for hit in hits if hit.score >= self._settings.min_score]
        request = replace(request, messages=with_passages(request.messages, found))
        async with contextlib.aclosing(self._engine.generate(request)) as chunks:
            async for chunk in chunks:
                yield chunk


def build(args: Mapping[str, Any]) -> serve.Application:
    settings = parse(RagSettings, args, "tests.benchmarks.app.serial:build")
    model_dir = shipped_model_dir()
    serial = serve.deployment(
        name="Serial",
        max_ongoing_requests=settings.engine.slots,
        ray_actor_options={"num_cpus": 1},
        request_router_config=ROUTER,
    )(Serial)
    ingress = serve.deployment(
        name="Ingress", max_ongoing_requests=4096, ray_actor_options={"num_cpus": 0.1}
    )(serve.ingress(app)(Ingress))
    index = index_documents(settings.index.documents, model_dir, settings.index.kind)
    return ingress.bind(serial.bind(settings, model_dir, index), settings.llm())
