"""What a replay of a deployment's own past needs to know, to be run in any process."""

from dataclasses import dataclass

from controller.core.capacity import CapacityLaw
from controller.core.choosing import CANDIDATES, Candidate
from controller.core.stated import PlannerSettings
from controller.core.windows import Values


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """`rates` are the bins known up to `end_bin` (events per second; NaN = not known), `law`
    what a replica carries, `starts_s` start times seen and `lead_s` what one usually takes."""

    settings: PlannerSettings
    rates: Values
    end_bin: int
    law: CapacityLaw
    starts_s: tuple[float, ...]
    lead_s: float
    candidates: tuple[Candidate, ...] = CANDIDATES
