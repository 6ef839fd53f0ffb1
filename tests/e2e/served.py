"""What is served in the end-to-end tests, the load on it, and the settings of its daemon."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from controller.demo.cluster import RayCluster
from controller.demo.model import Past
from serve_app.law import Law

APPLICATION, DEPLOYMENT = "chat", "LLM"
BESIDE = "beside"
SEASON_S = 60
RAMP_AT_S, RAMP_ENDS_S = 28.0, 42.0
SOONER_S = 16.0
"""By so much sooner come the ramps of the application beside: its starts are over by then."""
QUIET_RPS, BUSY_RPS = 1.0, 9.0
TTFT_S = 1.0
MAX_REPLICAS = 6
SCALE = 60
LEAD_PRIOR_S = 8.0
TTL_S = 10.0
"""How long a floor holds after our death, under `policy`."""
LAW = Law(slots=4, beta=0.05, prefill_tokens_per_s=4000.0, token_s=0.05)
OUTPUT_TOKENS = 20
WORK_S = LAW.lone_work_s(20, OUTPUT_TOKENS)
NEEDED = 3
"""Replicas that the ramp needs: 9 requests/s at 3.4 a replica."""


NATIVE = {
    "min_replicas": 1,
    "max_replicas": MAX_REPLICAS,
    "target_ongoing_requests": 3,
    "upscale_delay_s": 2,
    "downscale_delay_s": 1,
    "look_back_period_s": 3,
    "metrics_interval_s": 1,
}
"""Serve's own autoscaling, and that inside our policy."""


def by_policy(floors_url: str) -> dict[str, Any]:
    """NATIVE under our policy: a delay in front of a floor would hold it back."""
    delays = {name: NATIVE[name] for name in ("upscale_delay_s", "downscale_delay_s")}
    policy = {
        "policy_function": "controller.inserve.policy:LeadtimePolicy",
        "policy_kwargs": {"url": floors_url, **delays},
    }
    return {**NATIVE, **dict.fromkeys(delays, 0), "policy": policy}


def route(application: str) -> str:
    """Where an application is served."""
    return "/" if application == APPLICATION else f"/{application}"


def applications(
    external: bool, gang: int = 0, floors_url: str = "", name: str = APPLICATION
) -> dict[str, Any]:
    """The served application for one way of scaling, with `gang` GPUs a replica; with our policy
    inside Serve where it may ask a daemon at `floors_url`."""
    llm: dict[str, Any] = {"name": DEPLOYMENT, "max_ongoing_requests": LAW.slots}
    if external:
        llm["num_replicas"] = 1
    else:
        llm["autoscaling_config"] = by_policy(floors_url) if floors_url else NATIVE
    engine = {
        "kind": "standin",
        "load_s": 5,
        "slots": LAW.slots,
        "beta": LAW.beta,
        "prefill_tokens_per_s": LAW.prefill_tokens_per_s,
        "token_s": LAW.token_s,
        "chunk_tokens": 10,
    }
    application = {
        "name": name,
        "route_prefix": route(name),
        "import_path": "serve_app.app:build",
        "logging_config": {"enable_access_log": False},
        "external_scaler_enabled": external,
        "args": {
            "model": "standin",
            "slo_ttft_s": [TTFT_S],
            "cpus": 0.1,
            "gpus": gang,
            "engine": engine,
        },
        "deployments": [
            {"name": "Ingress", "num_replicas": 1, "ray_actor_options": {"num_cpus": 0.1}},
            llm,
        ],
    }
    return {"applications": [application]}


def earlier_season(seed: int, sooner_s: float = 0.0) -> Past:
    """A season of the schedule as its metrics would have shown it."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(SEASON_S) + sooner_s
    busy = (seconds >= RAMP_AT_S) & (seconds < RAMP_ENDS_S)
    arrived = np.cumsum(rng.poisson(np.where(busy, BUSY_RPS, QUIET_RPS)))
    # A request is inside for one second, as LAW says of a replica that is not full.
    done = np.concatenate([[0], arrived[:-1]])
    running = np.zeros((SEASON_S, MAX_REPLICAS))
    for second, inside in enumerate(arrived - done):
        running[second] = np.bincount(np.arange(inside) % MAX_REPLICAS, minlength=MAX_REPLICAS)
    return Past(arrived.astype(float), done.astype(float), running)


def daemon_settings(
    folder: Path, cluster: RayCluster, metrics_url: str, port: int, ways: Mapping[str, str]
) -> dict[str, Any]:
    """Those of a daemon that scales each application in its way."""
    return {
        "mode": "active",
        "season_s": SEASON_S,
        "tick_s": 1,
        "deployments": [
            {
                "application": name,
                "deployment": DEPLOYMENT,
                "ttft_s": TTFT_S,
                "max_replicas": MAX_REPLICAS,
                "lead_prior_s": LEAD_PRIOR_S,
                "actuation": way,
            }
            for name, way in ways.items()
        ],
        "prometheus": {"url": metrics_url, "scrape_s": 1, "timeout_s": 3},
        "serve": {"url": cluster.dashboard_url, "timeout_s": 3},
        "http": {"port": port},
        "policy": {"ttl_s": TTL_S},
        "journal": {"path": str(folder / "leadtime.db")},
        "log": {"format": "json", "level": "debug"},
    }
