"""The graph's own deployments: Router and FAQ on CPUs, Small with several models a replica."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from ray import serve

from serve_app.engine import Chunk, Engine, GenerationRequest
from serve_app.graph.intents import FaqModel, Intent, IntentModel
from serve_app.llm import engine_of
from serve_app.settings import AppSettings


class Router:
    """Tells what kind of question a text is. Some milliseconds of CPU each, hence a deployment."""

    def __init__(self, model: IntentModel) -> None:
        self._model = model

    async def classify(self, text: str) -> Intent:
        return await asyncio.to_thread(self._model.classify, text)


class Faq:
    """Answers what was asked often, in milliseconds and without a GPU."""

    def __init__(self, model: FaqModel) -> None:
        self._model = model

    async def answer(self, text: str, min_similarity: float) -> str | None:
        return await asyncio.to_thread(self._model.answer, text, min_similarity)


class Loaded:
    """An engine in a replica that holds several: it goes only when the last answer is done."""

    def __init__(self, engine: Engine, forget: Callable[[], object]) -> None:
        self.engine = engine
        self._forget = forget
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        # What Serve calls to unload. On the object, not the class: nothing for a collector.
        self.__del__ = self._unload

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[Engine]:
        self._open += 1
        self._idle.clear()
        try:
            yield self.engine
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def _unload(self) -> None:
        await self._idle.wait()
        self._forget()
        await self.engine.stop()


class Small:
    """Several small models behind one deployment; Serve's router prefers replicas that hold it."""

    async def __init__(self, models: Mapping[str, AppSettings], at_once: int) -> None:  # type: ignore[misc]
        replica_id = serve.get_replica_context().replica_id.unique_id
        self._held: dict[str, Loaded] = {}

        @serve.multiplexed(max_num_models_per_replica=at_once)  # type: ignore[untyped-decorator]
        async def load(name: str) -> Loaded:
            engine = engine_of(models[name], replica_id)
            await engine.start()
            loaded = self._held[name] = Loaded(engine, lambda: self._held.pop(name, None))
            return loaded

        self._load = load
        for name in list(models)[:at_once]:
            await self._load(name)

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        """Stream the answer of the model that the request's multiplexed id names."""
        loaded: Loaded = await self._load(serve.get_multiplexed_model_id())
        async with (
            loaded.answering() as engine,
            contextlib.aclosing(engine.generate(request)) as chunks,
        ):
            async for chunk in chunks:
                yield chunk

    async def check_health(self) -> None:
        for loaded in self._held.values():
            await loaded.engine.check_health()

    async def __del__(self) -> None:
        for loaded in [*self._held.values()]:
            await loaded.engine.stop()
