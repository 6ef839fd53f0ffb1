"""Real vLLM behind the `Engine` words: AsyncLLM in this process, its core and workers in theirs.

Its metrics come from vLLM's own logger through Ray; the warm-up is not counted.
"""

import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError
from vllm.outputs import RequestOutput
from vllm.renderers import ChatParams
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

from serve_app.engine import Chunk, EngineDead, GenerationRequest, Message, RequestRefused
from serve_app.settings import InvalidArgs, VllmSettings
from serve_app.tiny_model import TINY, ensure_tiny_model

log = logging.getLogger("ray.serve")

WARM_UP = GenerationRequest("warm-up", (Message("user", "hello"),), 4, {"ignore_eos": True})
"""The first request of an engine costs seconds more than any later one."""


class VllmEngine:
    """An Engine around AsyncLLM; `model` is the label of its metrics, `gpus` its gang."""

    def __init__(self, settings: VllmSettings, model: str, gpus: int) -> None:
        self._settings = settings
        self._model = model
        self._gpus = gpus
        self._engine: AsyncLLM | None = None
        self._defaults: dict[str, Any] = {}
        self._warm = False
        self._shared_memory: set[Path] = set()

    async def start(self) -> None:
        engine = self._engine = AsyncLLM.from_engine_args(
            self._engine_args(), stat_loggers=[self._stat_logger()]
        )
        # The model's own generation_config, as vLLM's server has it.
        self._defaults = engine.model_config.get_diff_sampling_param()
        try:
            await self._run(WARM_UP)
        except RequestRefused:  # a base model has no chat template
            await self._run(replace(WARM_UP, messages=(), prompt="hello"))
        self._warm = True
        self._shared_memory = shared_memory_of_children()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Chunk, None]:
        engine = self._running()
        params = self._sampling_params(request)
        try:
            prompt = await self._rendered(engine, request)
            outputs = engine.generate(prompt, params, request.request_id)
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    yield _chunk(output)
        except VLLMClientError as error:
            raise RequestRefused(str(error)) from None
        except EngineDeadError:
            raise EngineDead("vLLM's engine process is gone") from None

    async def check_health(self) -> None:
        """Asks the engine's process itself, between two steps: one that hangs does not answer,
        and Serve's own timeout for health checks tells."""
        engine = self._running()
        try:
            await engine.check_health()
            await engine.is_sleeping()
        except EngineDeadError:
            raise EngineDead("vLLM's engine process is gone") from None

    async def stop(self) -> None:
        if self._engine is not None:
            self._engine.shutdown()
        # vLLM leaves its queues' segments behind; a node sees replicas come and go for months.
        for segment in self._shared_memory:
            segment.unlink(missing_ok=True)

    def _running(self) -> AsyncLLM:
        if self._engine is None:
            raise EngineDead("the engine is not running")
        return self._engine

    async def _run(self, request: GenerationRequest) -> None:
        async for _ in self.generate(request):
            pass

    async def _rendered(self, engine: AsyncLLM, request: GenerationRequest) -> Any:
        """The prompt as token ids; RequestRefused if it has no form or exceeds the context."""
        renderer = engine.renderer
        if request.prompt is None:
            messages: list[Any] = [message._asdict() for message in request.messages]
            limits = replace(renderer.default_chat_tok_params, max_output_tokens=request.max_tokens)
            chat = ChatParams(chat_template_kwargs={"add_generation_prompt": True})
            try:
                _, [prompt] = await renderer.render_chat_async([messages], chat, limits)
            except ValueError as error:  # no chat template, or one that refuses these roles
                raise RequestRefused(str(error)) from None
            return prompt
        limits = replace(renderer.default_cmpl_tok_params, max_output_tokens=request.max_tokens)
        text_or_ids: Any = (
            {"prompt": request.prompt}
            if isinstance(request.prompt, str)
            else {"prompt_token_ids": list(request.prompt)}
        )
        [prompt] = await renderer.render_cmpl_async([text_or_ids], limits)
        return prompt

    def _sampling_params(self, request: GenerationRequest) -> SamplingParams:
        chosen: dict[str, Any] = {**self._defaults, **request.sampling}
        # A generation_config's own limit is for those who name none; here one is always named.
        chosen["max_tokens"] = request.max_tokens
        try:
            return SamplingParams(output_kind=RequestOutputKind.DELTA, **chosen)
        except ValueError as error:
            raise RequestRefused(str(error)) from None
        except VLLMClientError as error:
            raise RequestRefused(str(error)) from None

    def _engine_args(self) -> AsyncEngineArgs:
        settings = self._settings
        source = settings.source
        if source == TINY:
            source = str(ensure_tiny_model())
        try:
            return AsyncEngineArgs(
                model=source,
                served_model_name=[self._model],
                max_model_len=settings.max_model_len,
                max_num_seqs=settings.slots,
                enforce_eager=settings.enforce_eager,
                tensor_parallel_size=max(self._gpus, 1),
                # The replica's actor holds its whole gang, so its own processes can use it.
                distributed_executor_backend="mp",
                **settings.engine_args,
            )
        except TypeError as error:
            raise InvalidArgs(f"args of serve_app.app:build: engine.engine_args: {error}") from None

    def _stat_logger(self) -> type[RayPrometheusStatLogger]:
        """vLLM's logger through Ray, silent until the engine is warm."""
        engine = self

        class WarmStatLogger(RayPrometheusStatLogger):
            def record(self, *args: Any, **kwargs: Any) -> None:
                if engine._warm:
                    super().record(*args, **kwargs)

        return WarmStatLogger


def shared_memory_of_children() -> set[Path]:
    """Python's shared memory segments that processes below this one have mapped."""
    mapped: set[Path] = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            mapped |= {Path(region.path) for region in child.memory_maps()}
    return {path for path in mapped if path.match("/dev/shm/psm_*")}


def _chunk(output: RequestOutput) -> Chunk:
    """One output; an engine that gives up a request by itself says no reason of OpenAI's."""
    [completion] = output.outputs
    prompt_tokens = len(output.prompt_token_ids or ())
    match completion.finish_reason:
        case None | "stop" | "length" as reason:
            return Chunk(completion.text, len(completion.token_ids), reason, prompt_tokens)
        case reason:
            raise EngineDead(f"vLLM ended the request: {reason}")
