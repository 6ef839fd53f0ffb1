"""What a user states about one deployment."""

from dataclasses import dataclass

from controller.core.periods import Periods


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What a user states about one deployment, and the periods of its installation.

    First tokens within `ttft_s` for a share `attainment` of requests; between `min_replicas`
    and `max_replicas`; `lead_prior_s` until starts were seen; `slots` None = as Serve says;
    `writes` whether decisions are carried out, so that others' writes are conflicts;
    `start_timeout_s` after which a start is given up; `chooses` whether model and price may be
    chosen by their cost in a replay of the deployment's own past.
    """

    periods: Periods
    tick_s: float
    scrape_s: float
    ttft_s: float
    attainment: float
    min_replicas: int
    max_replicas: int
    lead_prior_s: float
    slots: float | None = None
    writes: bool = True
    start_timeout_s: float = 3600.0
    chooses: bool = True
