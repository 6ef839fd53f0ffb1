"""`import_path: serve_app.app:build`: one LLM deployment behind one OpenAI-compatible ingress.

Scaling belongs in the config file's `deployments:` (autoscaling_config, or num_replicas under
an external scaler): there it can change without restarting a replica.
"""

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.config import RequestRouterConfig

from serve_app.ingress import Ingress, app
from serve_app.llm import LLM
from serve_app.settings import AppSettings, parse_args

# A full replica makes Serve's router retry with growing pauses, 0.5 s at most by default: at
# overload slots would idle meanwhile. See README, "What was measured".
ROUTER = RequestRouterConfig(initial_backoff_s=0.02, max_backoff_s=0.05)


def build(args: Mapping[str, Any]) -> serve.Application:
    """The application of `args` (see `settings.AppSettings`); InvalidArgs if they are wrong."""
    settings = parse_args(args)
    return _ingress(settings, llm(settings))


def llm(settings: AppSettings, name: str = "LLM") -> serve.Application:
    """The deployment of one model, one engine a replica."""
    deployment = serve.deployment(
        name=name,
        # As many as the engine runs at once: what is over waits in the router, where any
        # replica that gets free takes it.
        max_ongoing_requests=settings.engine.slots,
        graceful_shutdown_timeout_s=120,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=5,
        health_check_timeout_s=15,
        request_router_config=ROUTER,
        **placement(settings),
    )(LLM)
    return deployment.bind(settings)


def placement(settings: AppSettings) -> dict[str, Any]:
    """What one replica takes of the cluster.

    A gang is one placement group bundle: all of its GPUs on one node, or none and it waits.
    Worked: gpus 4 asks for {"CPU": 1, "GPU": 4} at once, so that 8 GPUs hold two replicas.
    """
    actor = {"num_cpus": settings.cpus, "num_gpus": settings.gpus}
    if settings.gpus < 2:
        return {"ray_actor_options": actor}
    bundle = {"CPU": settings.cpus, "GPU": float(settings.gpus)}
    return {
        "ray_actor_options": actor,
        "placement_group_bundles": [bundle],
        "placement_group_strategy": "STRICT_PACK",
    }


def _ingress(settings: AppSettings, model: serve.Application) -> serve.Application:
    deployment = serve.deployment(
        name="Ingress",
        # It holds every open request, waiting ones too: a full ingress hides demand.
        max_ongoing_requests=4096,
        graceful_shutdown_timeout_s=120,
        graceful_shutdown_wait_loop_s=0.5,
        ray_actor_options={"num_cpus": 0.1},
    )(serve.ingress(app)(Ingress))
    return deployment.bind(model, settings)
