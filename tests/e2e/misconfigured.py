"""Applications with the mistakes that `leadtime check` is there to find, for a real Serve."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ray import serve

CPU = {"num_cpus": 0.01}


class Sleeper:
    """Answers after a while; its start may take a while, too."""

    async def __init__(self, start_s: float = 0.0, stay_s: float = 0.01) -> None:  # type: ignore[misc]
        await asyncio.sleep(start_s)
        self._stay_s = stay_s

    async def __call__(self, _: object) -> str:
        await asyncio.sleep(self._stay_s)
        return "done"


def sleeping(args: Mapping[str, Any]) -> serve.Application:
    """One deployment, `Model`, that starts within `start_s` and answers within `stay_s`."""
    model = serve.deployment(name="Model", ray_actor_options=CPU)(Sleeper)
    return model.bind(float(args.get("start_s", 0.0)), float(args.get("stay_s", 0.01)))


def scaled_in_code(_: Mapping[str, Any]) -> serve.Application:
    """`Model`, with its autoscaling in Python alone."""
    scaling = {"min_replicas": 2, "max_replicas": 3, "target_ongoing_requests": 2}
    model = serve.deployment(name="Model", ray_actor_options=CPU, autoscaling_config=scaling)
    return model(Sleeper).bind()


def scaled_in_args(args: Mapping[str, Any]) -> serve.Application:
    """`Model`, scaled by what stands in the application's `args`, as `ray.serve.llm` has it."""
    chosen = args["llm_configs"][0]["deployment_config"]
    model = serve.deployment(name="Model", ray_actor_options=CPU, **chosen)
    return model(Sleeper).bind()


def _application(name: str, function: str, model: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": f"tests.e2e.misconfigured:{function}",
        "args": {},
        "logging_config": {"enable_access_log": False},
        "deployments": [{"name": "Model", "ray_actor_options": CPU, **model}],
    } | more


def _scaling(**changed: Any) -> dict[str, Any]:
    sound = {
        "min_replicas": 2,
        "max_replicas": 3,
        "target_ongoing_requests": 2,
        "downscale_delay_s": 30,
    }
    return sound | changed


HEALTH = {"health_check_period_s": 5, "health_check_timeout_s": 15}
UNBOUND = {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 1_000_000_000}

SOUND = _application("sound", "sleeping", HEALTH | {"autoscaling_config": _scaling()})
APPLICATIONS = (
    SOUND,
    _application(
        "hasty",
        "sleeping",
        {
            "max_ongoing_requests": 4,
            "graceful_shutdown_timeout_s": 1,
            "autoscaling_config": _scaling(target_ongoing_requests=4, initial_replicas=2),
        },
        args={"stay_s": 2.5},
    ),
    _application(
        "zero",
        "sleeping",
        HEALTH | {"autoscaling_config": _scaling(min_replicas=0, max_replicas=2)},
        args={"start_s": 6},
    ),
    _application("fixed", "sleeping", HEALTH | {"num_replicas": 1}),
    _application("coded", "scaled_in_code", HEALTH, external_scaler_enabled=True),
    _application(
        "argued",
        "scaled_in_args",
        HEALTH,
        args={
            "llm_configs": [
                {
                    "deployment_config": {
                        "max_ongoing_requests": 1_000_000_000,
                        "autoscaling_config": UNBOUND,
                    }
                }
            ]
        },
    ),
)
GANG = _application(
    "gang",
    "sleeping",
    HEALTH
    | {
        "ray_actor_options": {"num_cpus": 0},
        "placement_group_bundles": [{"CPU": 0.01, "GPU": 1}] * 4,
        "placement_group_strategy": "STRICT_PACK",
        "autoscaling_config": _scaling(),
    },
)
"""A gang of four GPUs for a cluster of two: never RUNNING."""
