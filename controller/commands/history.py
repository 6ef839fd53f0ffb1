"""A user's own history for a backtest, read as `leadtime run` reads it at its start."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

import numpy as np

from controller.adapters.prometheus.backfill import Past, WorkWindows
from controller.adapters.prometheus.client import PrometheusClient, PrometheusError
from controller.commands.recordings import LoadError
from controller.connections import backfill, prometheus_options
from controller.core.periods import Periods
from controller.core.planning import Planner
from controller.core.types import DeploymentId
from controller.loop import wall_clock_s
from controller.planners import learn_work, planner_settings
from controller.replay.plant import PlantSettings
from controller.settings import Settings, SettingsError, load


@dataclass(frozen=True)
class Found:
    """The past in bins of `bin_s`, and each deployment's mean load in full replicas, where the
    requests that ran tell what one carries."""

    past: Past
    bin_s: float
    mean_replicas: Mapping[str, float]


def read_past(url: str, since_s: float, config: Path | None) -> Found:
    """The last `since_s` of the Prometheus at `url`; credentials, selector and season come from
    the settings. Raises LoadError."""
    try:
        settings = load(config)
        section = settings.prometheus.model_copy(update={"url": url.rstrip("/")})
    except SettingsError as error:
        raise LoadError(str(error)) from error
    if not url.startswith(("http://", "https://")):
        raise LoadError(f"--prometheus: {url!r} must begin with http:// or https://")
    settings = settings.model_copy(update={"prometheus": section})
    client = PrometheusClient(prometheus_options(section))
    try:
        past = backfill(settings, client).read(wall_clock_s(), since_s, lambda _: None)
    except PrometheusError as error:
        raise LoadError(f"--prometheus: {error}") from error
    finally:
        client.close()
    bin_s = Periods.of_season(settings.season_s, settings.tick_s).bin_s
    loads = {str(target): _mean_replicas(settings, past, target) for target in past.rates}
    return Found(past, bin_s, {name: mean for name, mean in loads.items() if mean is not None})


def _mean_replicas(settings: Settings, past: Past, target: DeploymentId) -> float | None:
    work: WorkWindows | None = past.work.get(target)
    if work is None:
        return None
    stated = planner_settings(settings, target)
    planner = Planner(target, replace(stated, slots=stated.slots or PlantSettings().slots))
    learn_work(planner, work)
    capacity_rps = planner.learned().capacity_rps
    mean_rps = float(np.nanmean(past.rates[target]))
    if capacity_rps is None or not isfinite(mean_rps):
        return None
    return mean_rps / capacity_rps
