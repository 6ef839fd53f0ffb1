"""Every period of the forecaster and the planner, derived from the length of one season."""

from dataclasses import dataclass
from functools import cached_property

BINS_PER_SEASON = 8640
WINDOWS = (1, 3, 12, 30, 60, 180, 360)


@dataclass(frozen=True)
class Periods:
    """The daily cycle is `season_s` long and its load is kept in bins of `bin_s`.

    A season of 86400 s has bins of 10 s, a target window of 60 s, recent windows of 10 s to
    1 h, a fit every 6 h and a memory of 14 days; a shorter season scales them all, down to
    bins of one tick.
    """

    season_s: float
    bin_s: float

    @classmethod
    def of_season(cls, season_s: float, tick_s: float) -> "Periods":
        """Bins of 1/8640 season, but no shorter than a tick and a whole number a season."""
        bins = max(1, round(season_s / max(season_s / BINS_PER_SEASON, tick_s)))
        if bins > BINS_PER_SEASON // 2:
            bins = BINS_PER_SEASON
        return cls(season_s, season_s / bins)

    @cached_property
    def season_bins(self) -> int:
        """Bins in a season."""
        return round(self.season_s / self.bin_s)

    @property
    def window_bins(self) -> int:
        """Bins of the window whose peak is forecast."""
        return 6

    @property
    def block_bins(self) -> int:
        """Bins of the means whose largest is the window's peak."""
        return 3

    @property
    def window_s(self) -> float:
        """Length of the window whose peak is forecast."""
        return self.window_bins * self.bin_s

    @cached_property
    def recent_bins(self) -> tuple[int, ...]:
        """Windows of recent means: none longer than a 24th of a season (or 12 bins)."""
        longest = max(12, self.season_bins // 24)
        return tuple(bins for bins in WINDOWS if bins <= longest)

    def fraction_bins(self, seasons: float) -> int:
        """A fraction of a season in whole bins, at least one."""
        return max(1, round(seasons * self.season_bins))

    @property
    def refit_s(self) -> float:
        """Time between two fits of the forecast model."""
        return self.season_s / 4

    @property
    def memory_bins(self) -> int:
        """Bins of history that are kept and learned from."""
        return 14 * self.season_bins

    @property
    def seen_bins(self) -> int:
        """How far back a forecast looks: a week of seasons, and the recent windows."""
        return 8 * self.season_bins + self.recent_bins[-1]

    def horizon_bins(self, ahead_s: float) -> int:
        """Whole bins from the end of the last known one to a window that far ahead."""
        return max(1, round(ahead_s / self.bin_s))
