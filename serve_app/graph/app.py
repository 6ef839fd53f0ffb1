"""`import_path: serve_app.graph.app:build`: Ingress -> Router, Faq, Small, LLM-<version>.

Intents and FAQ are learned here, when the application is built: a phrases file that cannot be
learned from fails the deploy, and every replica holds the same models.
"""

from collections.abc import Mapping
from typing import Any

from ray import serve

from serve_app.app import ROUTER, llm
from serve_app.graph.ingress import GraphIngress, app
from serve_app.graph.intents import FAQ, FaqModel, IntentModel, PhraseBook, read_phrases
from serve_app.graph.settings import GraphSettings
from serve_app.graph.stages import Faq, Router, Small
from serve_app.settings import InvalidArgs, parse

CPU_STAGE: dict[str, Any] = {
    "max_ongoing_requests": 32,
    "ray_actor_options": {"num_cpus": 0.5},
    "health_check_period_s": 5,
    "health_check_timeout_s": 15,
    "request_router_config": ROUTER,
}


def build(args: Mapping[str, Any]) -> serve.Application:
    """The application of `args` (see `settings.GraphSettings`).

    InvalidArgs if they are wrong, BadPhrases if the phrases file is.
    """
    settings = parse(GraphSettings, args, "serve_app.graph.app:build")
    phrases = read_phrases(settings.router.phrases)
    _check_routes(settings, phrases)
    versions = {
        version.name: llm(settings.version(version), f"LLM-{version.name}")
        for version in settings.llm.versions
    }
    ingress = serve.deployment(
        name="Ingress",
        max_ongoing_requests=4096,
        graceful_shutdown_timeout_s=120,
        graceful_shutdown_wait_loop_s=0.5,
        ray_actor_options={"num_cpus": 0.1},
        user_config=settings.default_split().model_dump(),
    )(serve.ingress(app)(GraphIngress))
    router = serve.deployment(name="Router", **CPU_STAGE)(Router)
    faq = serve.deployment(name="Faq", **CPU_STAGE)(Faq)
    return ingress.bind(
        router.bind(IntentModel.trained(phrases)),
        faq.bind(FaqModel(phrases)),
        versions,
        _small(settings),
        settings,
    )


def _check_routes(settings: GraphSettings, phrases: PhraseBook) -> None:
    known = {FAQ, *phrases.intents}
    if unknown := settings.router.routes.keys() - known:
        raise InvalidArgs(
            f"router.routes: {', '.join(sorted(unknown))}: no such intent in "
            f"{settings.router.phrases}; it has {', '.join(sorted(known))}"
        )


def _small(settings: GraphSettings) -> serve.Application | None:
    if settings.small is None:
        return None
    at_once = settings.small.max_models_per_replica
    slots = sorted((engine.slots for engine in settings.small.models.values()), reverse=True)
    deployment = serve.deployment(
        name="Small",
        # What the models that fit into a replica run at once; what is over waits in the router.
        max_ongoing_requests=sum(slots[:at_once]),
        graceful_shutdown_timeout_s=120,
        graceful_shutdown_wait_loop_s=0.5,
        health_check_period_s=5,
        health_check_timeout_s=15,
        ray_actor_options={"num_cpus": settings.small.cpus, "num_gpus": settings.small.gpus},
        request_router_config=ROUTER,
    )(Small)
    return deployment.bind(settings.small_models(), at_once)
