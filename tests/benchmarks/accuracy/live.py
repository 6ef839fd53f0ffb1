"""Our forecaster as it runs live: bin by bin, fits when it asks for them, calibrated."""

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.core.forecasting import fitting
from controller.core.forecasting.features import Rows
from controller.core.forecasting.fitting import FitJob
from controller.core.forecasting.forecaster import LEVELS, PROBABILITIES, Forecaster
from controller.core.types import Demand
from controller.core.windows import Values
from tests.benchmarks.accuracy.loads import BIN_S, DAY, Load, Record

QUANTILES: Values = np.array([0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])
# The planner asks for one tick more than the lead: the earliest its order can go out.
TICK_S = 10.0
REACH_S = 120.0
REPORT_BINS = 360


def horizons(leads_s: Sequence[float]) -> tuple[int, ...]:
    """Bins from an origin to the window a replica asked for then will serve."""
    return tuple(DAY.horizon_bins(lead_s + TICK_S) for lead_s in leads_s)


@dataclass(frozen=True)
class Played:
    """Quantiles after every bin of the test, shape (bins, leads, QUANTILES), NaN in gaps, and
    the CPU seconds of each fit of all leads."""

    first: int
    quantiles: Values
    fit_s: tuple[float, ...]

    @property
    def rows(self) -> Rows:
        """The bin each forecast was made after."""
        return self.first + np.arange(len(self.quantiles))


def play(load: Load, leads_s: Sequence[float], advance: Callable[[int], None]) -> Played:
    """History first, then each bin of the test; gaps are not observed, as when a source is
    silent. `advance` is told how many bins have passed."""
    aheads_s = tuple(lead_s + TICK_S for lead_s in leads_s)
    forecaster = Forecaster(DAY, aheads_s, REACH_S)
    forecaster.backfill(load.rates[: load.first_test], 0.0)
    spent_s = fit(forecaster)
    tested = load.rates[load.first_test :]
    held = np.full((len(tested), len(leads_s), len(LEVELS)), np.nan)
    for place, rate in enumerate(tested.tolist()):
        if place % REPORT_BINS == REPORT_BINS - 1:
            advance(REPORT_BINS)
        if rate != rate:
            continue
        start_s = (load.first_test + place) * BIN_S
        forecaster.observe(Demand(start_s, start_s + BIN_S, rate * BIN_S))
        spent_s += fit(forecaster)
        for lead, ahead_s in enumerate(aheads_s):
            forecast = forecaster.forecast(start_s + BIN_S, ahead_s)
            if forecast is not None:
                held[place, lead] = forecast.quantiles
    advance(len(tested) % REPORT_BINS)
    return Played(load.first_test, at_quantiles(held), tuple(spent_s))


def fit(forecaster: Forecaster) -> list[float]:
    """Fit if it is due; the CPU seconds it took, if it was."""
    job = forecaster.fit_due()
    if job is None:
        return []
    began_s = cpu_s()
    fitted = fitting.run(job)
    spent_s = cpu_s() - began_s
    forecaster.adopt(fitted)
    return [spent_s]


def fit_alone(record: Record, row: int, bins: int, lead_s: float) -> float:
    """CPU seconds of one fit on so much history, for the two windows a planner asks for."""
    rates = record.load.rates[max(0, row + 1 - bins) : row + 1]
    wanted = (DAY.horizon_bins(0.0), *horizons([lead_s]))
    job = FitJob(DAY, rates, row + 1, wanted, round(lead_s / BIN_S), PROBABILITIES)
    began_s = cpu_s()
    fitting.run(job)
    return cpu_s() - began_s


def at_quantiles(held: Values) -> Values:
    """From the forecaster's probabilities to QUANTILES, linear as in `Forecast.at`."""
    above = np.searchsorted(PROBABILITIES, QUANTILES - 1e-12)
    low, high = PROBABILITIES[above - 1], PROBABILITIES[above]
    share = (QUANTILES - low) / (high - low)
    made: Values = held[..., above - 1] * (1 - share) + held[..., above] * share
    return made


def cpu_s() -> float:
    """CPU time of this process and of the children it has waited for (Prophet's Stan)."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in spent)
