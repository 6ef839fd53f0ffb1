"""`leadtime bench`: what was asked for, checked; then the run, its table, JSON and plot."""

import asyncio
import math
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from controller.adapters.serve.api import ServeError
from controller.bench.main import LoadFailed, Order, run_bench
from controller.bench.replicas import NotReady
from controller.bench.report import show, write_html, write_json
from controller.core.types import DeploymentId
from controller.promises import slo_of
from controller.settings import Settings, SettingsError, load

MOST_REPLICAS = 1000
MOST_RPS = 100_000.0
INTERRUPTED = 130
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Asked:
    """The options as they were given."""

    replicas: str
    rates: str
    deployment: str | None
    url: str | None
    model: str | None
    slo_ttft_s: float | None
    warm_up_s: float
    measured_s: float
    prompt_tokens: float
    prompt_cv: float
    output_tokens: float
    output_cv: float
    seed: int
    time_scale: float
    json: Path | None
    html: Path | None


def bench_app(config: Path | None, asked: Asked) -> int:
    """Measure, print and write; 1 where a run failed, 130 when interrupted."""
    settings = load(config)
    order = ordered(settings, asked)
    # Ended from outside, it must still put back what was.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        made = asyncio.run(run_bench(settings, order, _progress))
    except (ServeError, NotReady, LoadFailed) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    show(made)
    if asked.json is not None:
        write_json(made, asked.json)
    if asked.html is not None:
        write_html(made, asked.html)
        print(f"wrote {asked.html}")
    return 0


def ordered(settings: Settings, asked: Asked) -> Order:
    """What to measure; raises SettingsError naming the option at fault."""
    target = _target(settings, asked.deployment)
    slo_ttft_s = asked.slo_ttft_s or slo_of(settings, target).ttft_s
    for option, path in (("--json", asked.json), ("--html", asked.html)):
        if path is not None and not path.parent.is_dir():
            raise SettingsError(f"{option}: {path.parent} is no folder; make it first")
    if asked.url is not None and not asked.url.startswith(("http://", "https://")):
        raise SettingsError("--url: must begin with http:// or https://")
    return Order(
        target=target,
        replicas=_numbers("--replicas", asked.replicas, int, MOST_REPLICAS),
        rates_rps=_numbers("--rps", asked.rates, float, MOST_RPS),
        slo_ttft_s=slo_ttft_s,
        warm_up_s=asked.warm_up_s,
        measured_s=asked.measured_s,
        prompt_tokens=asked.prompt_tokens,
        prompt_cv=asked.prompt_cv,
        output_tokens=asked.output_tokens,
        output_cv=asked.output_cv,
        seed=asked.seed,
        url=asked.url,
        model=asked.model,
        time_scale=asked.time_scale,
    )


def _target(settings: Settings, said: str | None) -> DeploymentId:
    if said is not None:
        application, slash, deployment = said.partition("/")
        if not (application and slash and deployment):
            raise SettingsError(f"--deployment: write APPLICATION/DEPLOYMENT, not {said!r}")
        return DeploymentId(application, deployment)
    if len(settings.deployments) != 1:
        raise SettingsError(
            f"--deployment: say which; the settings list {len(settings.deployments)}"
        )
    [entry] = settings.deployments
    return DeploymentId(entry.application, entry.deployment)


def _numbers(
    option: str, text: str, kind: Callable[[str], Number], most: float
) -> tuple[Number, ...]:
    """Different numbers above 0, ascending."""
    try:
        values = sorted({kind(part) for part in text.split(",")})
    except ValueError:
        raise SettingsError(f"{option}: numbers separated by commas, not {text!r}") from None
    if not all(math.isfinite(value) and 0 < value <= most for value in values):
        raise SettingsError(f"{option}: each must be above 0 and at most {most:g}, not {text!r}")
    return tuple(values)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
