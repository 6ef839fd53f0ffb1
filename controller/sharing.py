"""The budget of GPUs that the settings give all deployments together."""

from controller.core.budget import Budget
from controller.core.types import DeploymentId
from controller.settings import Settings


def gpu_budget(settings: Settings) -> Budget | None:
    """The GPUs that all deployments share, if they are limited."""
    if settings.gpu_budget is None:
        return None
    priorities = {
        DeploymentId(entry.application, entry.deployment): entry.priority
        for entry in settings.deployments
    }
    return Budget(settings.gpu_budget, priorities)
