"""One deployment's forecaster: learns from arrivals, answers with calibrated quantiles."""

import numpy as np

from controller.core.choosing import ModelName
from controller.core.forecasting import last_value, location_scale
from controller.core.forecasting.calibration import Calibration
from controller.core.forecasting.features import Frame
from controller.core.forecasting.fitting import FitJob, Fitted, Model, floor_of
from controller.core.forecasting.location_scale import LocationScale
from controller.core.periods import Periods
from controller.core.types import Demand, Forecast
from controller.core.windows import History, Values

PROBABILITIES: Values = np.array(
    [0.025, 0.15, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999]
)
LEVELS = tuple(PROBABILITIES.tolist())
UPPER = LEVELS.index(0.8)
ENOUGH_BINS = 40


class Forecaster:
    """Forecasts the peak demand of windows that open some seconds ahead.

    Fitting is not done here: `fit_due` hands out a job when one is due, whoever runs it gives
    the result to `adopt`. Until then, and when history is short, the cheap model answers.
    """

    def __init__(self, periods: Periods, horizons_s: tuple[float, ...], reach_s: float) -> None:
        self.periods = periods
        self.history = History(periods)
        self._horizons_s = horizons_s
        self._reach_s = reach_s
        self._models: tuple[Model, ...] = ()
        self._names: dict[int, str] = {}
        self._calibrations: dict[int, Calibration] = {}
        self._spares: tuple[last_value.LastValue, ...] = ()
        self._answering: tuple[Model, ...] = ()
        self._trusted = True
        self._issued: dict[int, Values] = {}
        self._used: dict[int, Values] = {}
        self._fitted_bin: int | None = None
        self._fitted_rows = 0
        self._chosen = ModelName.LOCATION_SCALE
        self._rebuild(floor_of(self.history.rates), self._reach_bins())

    @property
    def surprised(self) -> bool:
        """Whether the last window known peaked above its 99 % quantile at the longest horizon."""
        return self._calibrations[self._longest].surprised

    @property
    def model_name(self) -> str:
        """The model that answers for the longest horizon."""
        return self._models[-1].name

    def aim(self, horizons_s: tuple[float, ...], reach_s: float) -> None:
        """Set which windows will be asked for, shortest first; takes effect at the next fit."""
        self._horizons_s, self._reach_s = horizons_s, reach_s

    def use(self, model: ModelName) -> None:
        """Have this model fitted from the next fit on, which is due at once if it is another."""
        if model is not self._chosen:
            self._chosen, self._fitted_bin = model, None

    @property
    def known_bins(self) -> int:
        """Bins of history held."""
        return len(self.history.rates)

    def backfill(self, rates: Values, start_s: float) -> None:
        """Begin with a known history (events per second in bins; NaN where not known)."""
        self.history.load(rates, start_s)
        self._rebuild(floor_of(self.history.rates), self._reach_bins())

    def observe(self, demand: Demand) -> None:
        """Learn from what arrived."""
        closed = self.history.add(demand.arrivals, demand.start_s, demand.end_s)
        if len(self._frame):
            for rate in closed:
                self._close_bin(rate)
        elif len(closed):
            self._rebuild(floor_of(self.history.rates), self._reach_bins())

    def forecast(self, now_s: float, ahead_s: float) -> Forecast | None:
        """Demand in the window that opens `ahead_s` from now, by the model whose horizon,
        counted from the last closed bin, is nearest; None before the first closed bin."""
        if not self._issued:
            return None
        needed = self.periods.horizon_bins(now_s - self.history.end_s + ahead_s)
        horizon = min(self._names, key=lambda bins: abs(bins - needed))
        return Forecast(
            now_s,
            ahead_s,
            LEVELS,
            tuple(self._used[horizon].tolist()),
            self._names[horizon],
            self._calibrations[horizon].coverage,
            trusted=self._trusted,
        )

    def fit_due(self) -> FitJob | None:
        """A job when the model is old, aims elsewhere, or has far less history than there is."""
        known = self.known_bins
        if known < ENOUGH_BINS:
            return None
        age_bins = self.history.end_bin - (self._fitted_bin or 0)
        old = age_bins * self.periods.bin_s >= self.periods.refit_s
        grown = known >= 1.25 * self._fitted_rows
        if not (self._fitted_bin is None or old or grown or self._aims_elsewhere(age_bins)):
            return None
        self._fitted_bin = self.history.end_bin
        self._fitted_rows = known
        return FitJob(
            self.periods,
            self.history.rates.copy(),
            self.history.end_bin,
            self._wanted_horizons(),
            self._reach_bins(),
            PROBABILITIES,
            self._chosen,
        )

    def adopt(self, fitted: Fitted) -> None:
        """Use fitted models from the next forecast on."""
        self._models, self._spares = fitted.models, fitted.spares
        self._rebuild(fitted.floor_rps, fitted.reach_bins)

    def _aims_elsewhere(self, age_bins: int) -> bool:
        """Whether the windows asked for have moved by over a tenth; looked at once an hour of
        a day-long season."""
        if age_bins < self.periods.fraction_bins(1 / 24):
            return False
        return any(
            abs(wanted - have) > max(1, 0.1 * have)
            for wanted, have in zip(self._wanted_horizons(), self._names, strict=True)
        )

    def _wanted_horizons(self) -> tuple[int, ...]:
        horizons = [self.periods.horizon_bins(ahead_s) for ahead_s in self._horizons_s]
        for position in range(1, len(horizons)):
            horizons[position] = max(horizons[position], horizons[position - 1] + 1)
        return tuple(horizons)

    def _reach_bins(self) -> int:
        return max(1, round(self._reach_s / self.periods.bin_s))

    def _rebuild(self, floor_rps: float, reach_bins: int) -> None:
        """A new frame over what forecasts look back on; calibrations of horizons that stay are
        kept."""
        rates = self.history.rates[-self.periods.seen_bins :]
        first_bin, now = self.history.end_bin - len(rates), max(len(rates) - 1, 0)
        self._frame = Frame(self.periods, floor_rps, reach_bins, first_bin, now)
        self._frame.extend(rates)
        if not self._models:
            self._models = tuple(
                last_value.prior(horizon, PROBABILITIES) for horizon in self._wanted_horizons()
            )
        self._names = {model.horizon_bins: model.name for model in self._models}
        self._longest = self._models[-1].horizon_bins
        old = sorted(self._calibrations.items())
        self._calibrations = {
            model.horizon_bins: self._calibration(model, position, old)
            for position, model in enumerate(self._models)
        }
        self._answering = _side_by_side(self._models)
        self._issued = {}
        if len(rates):
            self._predict()

    def _calibration(
        self, model: Model, position: int, old: list[tuple[int, Calibration]]
    ) -> Calibration:
        """The calibration a horizon had, or a fresh one that starts from its predecessor's."""
        if position < len(old) and old[position][0] == model.horizon_bins:
            return old[position][1]
        delay = model.horizon_bins + self.periods.window_bins
        fresh = Calibration(self.periods, PROBABILITIES, delay)
        if position < len(old):
            fresh.theta = old[position][1].theta.copy()
        return fresh

    def _close_bin(self, rate: float) -> None:
        self._frame.extend(np.array([rate]))
        self._predict()
        peak = self._frame.last_peak_rps()
        for horizon, used in self._used.items():
            self._calibrations[horizon].settle(used, peak)

    def _predict(self) -> None:
        for model in self._answering:
            made = model.latest(self._frame)
            if np.isfinite(made).all():
                for horizon, quantiles in zip(model.horizons.tolist(), made, strict=True):
                    self._issued[horizon] = self._calibrations[horizon].correct(quantiles)
        self._used = dict(self._issued)
        self._trusted = not self._spares or all(c.holds for c in self._calibrations.values())
        if not self._trusted:
            self._lean_on_last_value()

    def _lean_on_last_value(self) -> None:
        """Raise the upper quantiles to those of the cheap model: after a shift of level the
        fitted one expects a return to the usual, and covers 49 to 73 % where it says 95."""
        for spare in self._spares:
            last = spare.latest(self._frame)[0]
            used = self._used.get(spare.horizon_bins, last).copy()
            used[UPPER:] = np.fmax(used[UPPER:], last[UPPER:])
            self._used[spare.horizon_bins] = used


def _side_by_side(models: tuple[Model, ...]) -> tuple[Model, ...]:
    """The same models, those of one kind as one that answers for all its horizons at once."""
    fitted = [model for model in models if isinstance(model, LocationScale)]
    cheap = tuple(model for model in models if not isinstance(model, LocationScale))
    return (location_scale.together(fitted), *cheap) if fitted else cheap
