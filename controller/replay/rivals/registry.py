"""The rivals by name: what each is, the one parameter to sweep, and how an expert would set it."""

from collections.abc import Callable
from dataclasses import dataclass

from controller.replay.plant import Plant
from controller.replay.rivals import (
    apa,
    aws,
    composite,
    dynamo,
    fixed,
    hpa,
    kpa,
    phpa,
    ray_serve,
)
from controller.replay.score import Score

Params = dict[str, float]


@dataclass(frozen=True)
class Size:
    """The one parameter that trades GPU time for violations, to be swept on a log scale."""

    name: str
    cheapest: float
    dearest: float


@dataclass(frozen=True)
class Rival:
    """A policy to beat.

    `styles` are settings of every other parameter, its published defaults first. `play` takes a
    style with the size under its name, keeps to the plant's cap and never asks for fewer than one.
    """

    name: str
    what: str
    size: Size
    styles: tuple[Params, ...]
    play: Callable[[Plant, Params], Score]


REPLICAS = Size("replicas", 1.0, 128.0)
TARGET_ONGOING = Size("target_ongoing_requests", 64.0, 1.0)
REQUESTS = Size("requests_per_replica", 64.0, 1.0)
RPS = Size("rps_per_replica", 4.0, 0.1)
"""From more than any replica of the measured sets carries to what asks for the cap at all times."""

_ALL = (
    Rival("static", "a fixed number of replicas", REPLICAS, fixed.STYLES, fixed.play),
    Rival(
        "ray",
        "Ray Serve's own autoscaler",
        TARGET_ONGOING,
        ray_serve.STYLES,
        ray_serve.play,
    ),
    Rival("hpa", "Kubernetes HPA on a KEDA threshold", REQUESTS, hpa.STYLES, hpa.play),
    Rival("kpa", "Knative's stable and panic windows", REQUESTS, kpa.STYLES, kpa.play),
    Rival("apa", "AIBrix's APA", REQUESTS, apa.STYLES, apa.play),
    Rival("dynamo", "forecast floor and load loop", RPS, dynamo.STYLES, dynamo.play),
    Rival("aws", "the greater of predictive and target tracking", RPS, aws.STYLES, aws.play),
    Rival("phpa", "HPA and Holt-Winters on its counts", REQUESTS, phpa.STYLES, phpa.play),
    Rival(
        "composite",
        "forecast quantile, pending-aware supply, consolidation check, panic latch",
        RPS,
        composite.STYLES,
        composite.play,
    ),
)
RIVALS: dict[str, Rival] = {rival.name: rival for rival in _ALL}
