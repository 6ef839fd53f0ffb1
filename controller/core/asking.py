"""What to ask of Serve for one deployment, and what to make of how it answers."""

from dataclasses import replace

from controller.core.compliance import Compliance
from controller.core.ownership import Ownership
from controller.core.types import (
    Action,
    DeploymentId,
    Hold,
    Observation,
    Plan,
    Reason,
    ScaleDeployment,
)


class Asking:
    """Turns plans into actions. Someone else who keeps writing is a conflict, in which nothing is
    asked; a number without effect is asked for ever more rarely. Where nothing is written
    (`writes` False) neither can be told, and every difference is an action."""

    def __init__(self, target: DeploymentId, writes: bool) -> None:
        self._target = target
        self._writes = writes
        self._ownership = Ownership()
        self._compliance = Compliance()

    @property
    def paused_until_s(self) -> float:
        """When writing goes on after the last conflict; in the past where there is none."""
        return self._ownership.paused_until_s

    def answered(self, plan: Plan, observation: Observation) -> Plan:
        """The plan, with the reason that someone else writes the replicas too, or that Serve does
        not do what it was asked to."""
        replicas, at_s = observation.replicas, observation.at_s
        if replicas is None or not self._writes:
            return plan
        complies = self._compliance.observe(at_s, replicas)
        if self._ownership.observe(at_s, replicas):
            return replace(plan, reason=Reason.CONFLICT)
        return plan if complies else replace(plan, reason=Reason.NOT_HONOURED)

    def action(self, plan: Plan, observation: Observation) -> Action:
        """What to do about the plan now."""
        replicas, at_s = observation.replicas, observation.at_s
        if replicas is None or plan.reason is Reason.CONFLICT or plan.wanted == replicas.setpoint:
            return Hold(self._target)
        if self._writes and not self._compliance.ask(at_s, plan.wanted):
            return Hold(self._target)
        self._ownership.ask(plan.wanted)
        return ScaleDeployment(self._target, plan.wanted)
