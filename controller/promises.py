"""What the settings promise for one deployment."""

from controller.core.explain import Promise
from controller.core.periods import Periods
from controller.core.types import DeploymentId
from controller.core.weighing import PREFILL_SHARE
from controller.settings import Settings, Slo


def slo_of(settings: Settings, target: DeploymentId) -> Slo:
    """What is promised for a deployment: its own entry, or the common one."""
    for entry in settings.deployments:
        if (entry.application, entry.deployment) == target:
            return entry
    return settings.slo


def promise_of(settings: Settings, target: DeploymentId) -> Promise:
    """What an explanation must know of a deployment's settings."""
    slo = slo_of(settings, target)
    return Promise(
        slo.ttft_s,
        slo.attainment,
        slo.min_replicas,
        slo.max_replicas,
        Periods.of_season(settings.season_s, settings.tick_s).window_s,
        PREFILL_SHARE,
    )
