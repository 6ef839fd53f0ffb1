"""How good forecasts were: pinball loss, MASE, coverage at origins and over rolling days."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.core.forecasting.features import Rows
from controller.core.windows import Values
from tests.benchmarks.accuracy.live import QUANTILES, Played
from tests.benchmarks.accuracy.loads import DAY, HOUR_BINS, Record
from tests.benchmarks.accuracy.rivals import spreads

OURS = "ours"
COVERED = (0.9, 0.95, 0.99)
COLUMNS = [QUANTILES.tolist().index(q) for q in COVERED]
TOLERANCE = 0.015
SHIFTS = np.linspace(-0.2, 0.2, 21)
WIDTHS = np.exp(np.linspace(-1.0, 1.0, 21))
RESAMPLES = 400


@dataclass(frozen=True)
class Scored:
    """One series at its origins: outcomes (origins, leads), and by forecaster's name its
    quantiles (origins, leads, QUANTILES; NaN where it was not asked), CPU seconds of each fit
    and failures. Forecasters are compared at the origins where both were asked."""

    name: str
    rows: Rows
    naive_error: float
    outcomes: Values
    quantiles: Mapping[str, Values]
    fit_s: Mapping[str, Sequence[float]]
    failed: Mapping[str, int]

    def asked(self, name: str) -> NDArray[np.bool_]:
        """At which origins a forecaster was asked."""
        return np.isfinite(self.quantiles[name][:, 0, 0])

    def losses(self, name: str) -> Values:
        """Pinball loss, shape (origins, leads)."""
        return pinball(self.outcomes, self.quantiles[name])

    def both(self, name: str, against: str) -> tuple[Values, Values]:
        """Losses of two at the origins where both were asked."""
        asked = self.asked(name) & self.asked(against)
        return self.losses(name)[asked], self.losses(against)[asked]


def pinball(outcomes: Values, quantiles: Values) -> Values:
    """Mean over QUANTILES of the pinball loss: an outcome of 10 costs the median 8 half of 2,
    the 90 % quantile 8 nine tenths of it and the 90 % quantile 12 a tenth of 2."""
    above = outcomes[..., None] - quantiles
    made: Values = np.maximum(QUANTILES * above, (QUANTILES - 1) * above).mean(axis=-1)
    return made


def ratio(series: Sequence[Scored], name: str, against: str, lead: int | None = None) -> float:
    """Geometric mean over series (and leads) of the ratio of mean pinball losses."""
    logs = [_log_ratio(*s.both(name, against)) for s in series]
    return float(np.exp(np.mean(logs if lead is None else [log[lead] for log in logs])))


def interval(
    series: Sequence[Scored], name: str, against: str, lead: int | None = None
) -> tuple[float, float]:
    """The 5 and 95 % quantile of that ratio when origins are drawn again."""
    rng = np.random.default_rng(1)
    drawn = np.zeros(RESAMPLES)
    for scored in series:
        ours, theirs = scored.both(name, against)
        count = len(ours)
        for turn in range(RESAMPLES):
            again = rng.integers(0, count, count)
            log = _log_ratio(ours[again], theirs[again])
            drawn[turn] += (log.mean() if lead is None else log[lead]) / len(series)
    low, high = np.exp(np.quantile(drawn, [0.05, 0.95]))
    return float(low), float(high)


def _log_ratio(losses: Values, against: Values) -> Values:
    made: Values = np.log(losses.mean(axis=0) / against.mean(axis=0))
    return made


def mase(series: Sequence[Scored], name: str, lead: int) -> float:
    """Mean absolute scaled error of the median, mean over series."""
    errors = [
        np.nanmean(np.abs(s.outcomes[:, lead] - s.quantiles[name][:, lead, 0])) / s.naive_error
        for s in series
    ]
    return float(np.mean(errors))


def share_below(series: Sequence[Scored], name: str, lead: int) -> Values:
    """Share of outcomes at or below the 90, 95 and 99 % quantile, all origins together."""
    inside = [
        (s.outcomes[:, lead, None] <= s.quantiles[name][:, lead, COLUMNS])[s.asked(name)]
        for s in series
    ]
    made: Values = np.concatenate(inside).mean(axis=0)
    return made


def hindsight(series: Sequence[Scored], name: str, against: str) -> Values:
    """That ratio by lead, had a forecaster's quantiles, in logs, been moved by the shift and
    widened by the factor that were best on these very outcomes, series by series: more than
    any calibration could have done."""
    logs = []
    for scored in series:
        asked = scored.asked(name) & scored.asked(against)
        theirs = scored.losses(against)[asked].mean(axis=0)
        best = [
            _least_loss(scored.outcomes[asked, lead], scored.quantiles[name][asked, lead])
            for lead in range(len(theirs))
        ]
        logs.append(np.log(best / theirs))
    made: Values = np.exp(np.mean(logs, axis=0))
    return made


def _least_loss(outcomes: Values, quantiles: Values) -> float:
    logs = np.log(quantiles + 1e-3)
    middle = logs[:, :1]
    return min(
        float(pinball(outcomes, np.exp(middle + shift + width * (logs - middle))).mean())
        for width in WIDTHS.tolist()
        for shift in SHIFTS.tolist()
    )


@dataclass(frozen=True)
class Tested:
    """Our forecaster after every bin of a test: by lead, the share of outcomes at or below the
    90, 95 and 99 % quantile, the share of rolling days (one each hour) within 1.5 points of
    it and the share in the worst day, shape (leads, 3); and pinball over last value's."""

    name: str
    days: float
    share: Values
    days_ok: Values
    worst: Values
    over_last_value: Values


def tested(record: Record, played: Played, horizons: Sequence[int]) -> Tested:
    """Score a whole test."""
    outcomes = record.outcomes(played.rows, horizons)
    known = np.isfinite(outcomes) & np.isfinite(played.quantiles[..., 0])
    inside = outcomes[..., None] <= played.quantiles[..., COLUMNS]
    days = _rolling(inside, known)
    target = np.array(COVERED)
    distance = np.abs(days - target)
    farthest = distance.argmax(axis=0)
    ours = pinball(outcomes, played.quantiles)
    theirs = pinball(outcomes, _last_value(record, played.rows, horizons))
    known &= np.isfinite(theirs)
    return Tested(
        record.load.name,
        len(outcomes) / DAY.season_bins,
        (inside & known[..., None]).sum(axis=0) / known.sum(axis=0)[:, None],
        (distance <= TOLERANCE + 1e-9).mean(axis=0),
        np.take_along_axis(days, farthest[None], axis=0)[0],
        _known_mean(ours, known) / _known_mean(theirs, known),
    )


def _known_mean(losses: Values, known: NDArray[np.bool_]) -> Values:
    made: Values = np.where(known, losses, 0.0).sum(axis=0) / known.sum(axis=0)
    return made


def _rolling(inside: NDArray[np.bool_], known: NDArray[np.bool_]) -> Values:
    """Share inside over each day that begins on an hour of the test and is at least half
    known; shape (days, leads, 3)."""
    hits = _sums(inside & known[..., None])
    counts = _sums(known)[..., None]
    starts = np.arange(0, max(1, len(known) - DAY.season_bins + 1), HOUR_BINS)
    ends = np.minimum(starts + DAY.season_bins, len(known))
    seen = counts[ends] - counts[starts]
    enough = seen.min(axis=(1, 2)) >= DAY.season_bins / 2
    made: Values = (hits[ends] - hits[starts])[enough] / seen[enough]
    return made


def _sums(flags: NDArray[np.bool_]) -> Values:
    """Running sums along the first axis, beginning with 0."""
    made = np.zeros((len(flags) + 1, *flags.shape[1:]))
    made[1:] = flags.cumsum(axis=0)
    return made


def _last_value(record: Record, rows: Rows, horizons: Sequence[int]) -> Values:
    """Last value with its quantiles learned anew each day; (rows, horizons, QUANTILES)."""
    made = []
    for start in range(int(rows[0]), int(rows[-1]) + 1, DAY.season_bins):
        day = np.arange(start, min(start + DAY.season_bins, int(rows[-1]) + 1))
        logs = record.levels[day, None, None] + spreads(record, start, horizons)
        made.append(np.exp(logs) - record.floor_rps)
    return np.concatenate(made)
