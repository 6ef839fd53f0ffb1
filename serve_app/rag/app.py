"""`import_path: serve_app.rag.app:build`: Ingress -> Embedder, Search, LLM.

Each is a deployment of its own, so that each is watched and scaled by what it costs: the first
two on CPUs, the last on GPUs. While the LLM writes one answer, the CPU stages prepare the next.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import serve

from serve_app.app import ROUTER, llm
from serve_app.rag.encoder import shipped_model_dir
from serve_app.rag.index import BadIndex, PassageIndex, encoder_digest, index_documents
from serve_app.rag.ingress import RagIngress, app
from serve_app.rag.settings import BatchSettings, IndexSettings, RagSettings
from serve_app.rag.stages import Embedder, Search
from serve_app.settings import parse


def build(args: Mapping[str, Any]) -> serve.Application:
    """The application of `args` (see `settings.RagSettings`).

    InvalidArgs if they are wrong; EncoderUnusable, BadDocuments or BadIndex if what they name is.
    """
    settings = parse(RagSettings, args, "serve_app.rag.app:build")
    model_dir = settings.encoder.model_dir or shipped_model_dir()
    index = _index(settings.index, model_dir)
    ingress = serve.deployment(
        name="Ingress",
        max_ongoing_requests=4096,
        graceful_shutdown_timeout_s=120,
        graceful_shutdown_wait_loop_s=0.5,
        ray_actor_options={"num_cpus": 0.1},
    )(serve.ingress(app)(RagIngress))
    return ingress.bind(
        _embedder(settings, model_dir), _search(index), llm(settings.llm()), settings
    )


def _embedder(settings: RagSettings, model_dir: Path) -> serve.Application:
    batching = BatchSettings()
    return serve.deployment(
        name="Embedder",
        # A batch at work and the next ones in the making; what is over waits in the router.
        max_ongoing_requests=4 * batching.max_batch_size,
        ray_actor_options={"num_cpus": settings.encoder.threads},
        user_config=batching.model_dump(),
        health_check_period_s=5,
        health_check_timeout_s=15,
        request_router_config=ROUTER,
    )(Embedder).bind(model_dir, settings.encoder.threads)


def _search(index: PassageIndex | Path) -> serve.Application:
    return serve.deployment(
        name="Search",
        max_ongoing_requests=64,
        ray_actor_options={"num_cpus": 0.5},
        health_check_period_s=5,
        health_check_timeout_s=15,
        request_router_config=ROUTER,
    )(Search).bind(index)


def _index(settings: IndexSettings, model_dir: Path) -> PassageIndex | Path:
    """The documents' index, or the folder of a ready one that this encoder made."""
    if settings.dir is None:
        return index_documents(settings.documents, model_dir, settings.kind)
    made_by, ours = PassageIndex.load(settings.dir).encoder_digest, encoder_digest(model_dir)
    if made_by != ours:
        raise BadIndex(
            f"index.dir: {settings.dir} was made by encoder {made_by}, the application's is "
            f"{ours}: make it anew with python -m serve_app.rag.index"
        )
    return settings.dir
