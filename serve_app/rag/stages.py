"""The CPU stages, each a deployment that scales on its own."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import serve

from serve_app.rag.encoder import SentenceEncoder
from serve_app.rag.index import Hit, PassageIndex
from serve_app.rag.settings import BatchSettings

Vector = NDArray[np.float32]


class Embedder:
    """Texts to vectors in micro-batches: one call of the encoder at a time, in a thread beside.

    While it runs, the event loop takes in what comes; that is the next batch.
    """

    def __init__(self, model_dir: Path, threads: int) -> None:
        self._encoder = SentenceEncoder(model_dir, threads)
        self._encoder.encode(["warm up"])

    def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        batching = BatchSettings.model_validate(user_config)
        self._batched.set_max_batch_size(batching.max_batch_size)
        self._batched.set_batch_wait_timeout_s(batching.batch_wait_s)

    async def embed(self, text: str) -> Vector:
        """The text's vector, of length 1."""
        vector: Vector = await self._batched(text)
        return vector

    async def count_tokens(self, texts: list[str]) -> int:
        """For OpenAI's `usage`."""
        return self._encoder.count_tokens(texts)

    @serve.batch(  # type: ignore[untyped-decorator]
        max_batch_size=BatchSettings().max_batch_size, batch_wait_timeout_s=0.0
    )
    async def _batched(self, texts: list[str]) -> list[Vector]:
        return list(await asyncio.to_thread(self._encoder.encode, texts))


class Search:
    """The nearest passages to a vector; `index` itself, or the folder to load it from."""

    def __init__(self, index: PassageIndex | Path) -> None:
        self._index = PassageIndex.load(index) if isinstance(index, Path) else index

    async def nearest(self, vector: Vector, count: int, min_score: float) -> list[Hit]:
        """At most `count` passages of at least `min_score`, best first."""
        hits = await asyncio.to_thread(self._index.nearest, vector, count)
        return [hit for hit in hits if hit.score >= min_score]
