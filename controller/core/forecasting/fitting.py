"""A fit as a job: everything it needs in, the fitted models out, to run in any process."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.choosing import ModelName
from controller.core.forecasting import last_value, location_scale, seasonal
from controller.core.forecasting.features import Frame
from controller.core.forecasting.last_value import LastValue
from controller.core.forecasting.location_scale import LocationScale
from controller.core.forecasting.seasonal import Seasonal
from controller.core.periods import Periods
from controller.core.windows import Values

Model = LocationScale | LastValue | Seasonal

FLOOR_SHARE = 0.005


@dataclass(frozen=True, eq=False)
class FitJob:
    """`rates` are the bins known up to `end_bin`; horizons are in bins, shortest first; `model`
    is the one to fit."""

    periods: Periods
    rates: Values
    end_bin: int
    horizons: tuple[int, ...]
    reach_bins: int
    probabilities: Values
    model: ModelName = ModelName.LOCATION_SCALE


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a job gave: one model a horizon and a cheap one to fall back on, and how to build
    the frame they read."""

    end_bin: int
    floor_rps: float
    reach_bins: int
    models: tuple[Model, ...]
    spares: tuple[LastValue, ...]


def run(job: FitJob) -> Fitted:
    """Fit every horizon; a horizon with too little history gets the cheap model."""
    floor_rps = floor_of(job.rates)
    first_bin = job.end_bin - len(job.rates)
    frame = Frame(job.periods, floor_rps, job.reach_bins, first_bin)
    frame.extend(job.rates)
    spares = tuple(last_value.fit(frame, horizon, job.probabilities) for horizon in job.horizons)
    made = _fitted(job, frame)
    models = tuple(model or spare for model, spare in zip(made, spares, strict=True))
    return Fitted(job.end_bin, floor_rps, job.reach_bins, models, spares)


def _fitted(job: FitJob, frame: Frame) -> Sequence[Model | None]:
    if job.model is ModelName.LOCATION_SCALE:
        return location_scale.fit(frame, job.horizons, job.probabilities)
    if job.model is ModelName.SEASONAL:
        return [seasonal.fit(frame, horizon, job.probabilities) for horizon in job.horizons]
    return [None] * len(job.horizons)


def floor_of(rates: Values) -> float:
    """The rate added before logarithms are taken: half a percent of the mean."""
    known = rates[np.isfinite(rates)]
    mean = float(known.mean()) if len(known) else 0.0
    return max(FLOOR_SHARE * mean, 1e-3)
