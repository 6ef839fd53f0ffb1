"""What runs in the process of a replay: the only thing of the daemon that knows `replay`, and only
there is it imported."""

from collections.abc import Sequence

from controller.core.choosing import Trial
from controller.core.rehearsal import Rehearsal


def rehearse(job: Rehearsal) -> Sequence[Trial]:
    """What each candidate comes to in the deployment's own past; raises TraceError where that
    cannot be played again."""
    from controller.replay.rehearsal import trials

    return trials(job)
