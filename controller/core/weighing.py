"""How many replicas the forecasts of one tick are worth: what is there on the scales."""

from dataclasses import dataclass

from controller.core.capacity import CapacityLaw
from controller.core.risk import Lateness, RiskTable
from controller.core.sizing import Backlog, extra_demand_rps, needs, projected_backlog
from controller.core.supply import Supply
from controller.core.types import Forecast, Load, Reason

PREFILL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Scales:
    """What forecasts are weighed with: a replica's law, the price of a late request in
    GPU-seconds, the SLO, the lead, what is there, the `most` that is looked at and what was
    wanted `before`."""

    law: CapacityLaw
    price_gpu_s: float
    ttft_s: float
    window_s: float
    lead_s: float
    supply: Supply
    most: int
    before: int

    def worth(self, load: Load | None, near: Forecast, ahead: Forecast) -> tuple[int, Reason]:
        """Replicas worth having, now or one lead ahead, whichever is more."""
        capacity_rps, price = self.law.capacity_rps, self.price_gpu_s
        lateness = Lateness(self.ttft_s, PREFILL_SHARE * self.ttft_s)
        risk = RiskTable(self.law, lateness, self.window_s)
        both = near, ahead
        extra_rps = [self._backlog_rps(load, forecast) for forecast in both]
        counts = needs(both, risk, capacity_rps, price, self.most, extra_rps, self.before)
        best, why = 0, Reason.FORECAST
        for forecast, extra, count in zip(both, extra_rps, counts, strict=True):
            if count > best:
                best = count
                why = Reason.FORECAST if forecast.trusted else Reason.FORECAST_DISTRUSTED
                why = Reason.BACKLOG if extra > 0 else why
        return best, why

    def by_event(self, count: int, load: Load | None, near: Forecast, ahead: Forecast) -> bool:
        """Whether fewer than `count` would do if no known event were coming or running."""
        if near.otherwise is None and ahead.otherwise is None:
            return False
        return self.worth(load, near.otherwise or near, ahead.otherwise or ahead)[0] < count

    def _backlog_rps(self, load: Load | None, forecast: Forecast) -> float:
        if load is None or load.queued <= 0:
            return 0.0
        capacity_rps, horizon_s = self.law.capacity_rps, forecast.horizon_s
        median_rps = forecast.at(0.5)
        ready, coming_s = self.supply.ready, self.supply.coming_s(self.lead_s)
        left = projected_backlog(load.queued, median_rps, capacity_rps, ready, coming_s, horizon_s)
        there = ready + sum(wait_s <= horizon_s for wait_s in coming_s)
        backlog = Backlog(left, median_rps)
        return extra_demand_rps(
            backlog, there, capacity_rps, self.ttft_s, self.price_gpu_s, self.lead_s
        )
