"""One deployment of an inspection alone, changed at will, and what is found in it."""

import copy
from dataclasses import replace
from typing import Any

from controller.checks.findings import Finding, Inspection
from controller.checks.rules import judge


def subject(seen: Inspection, application: str, **changed: Any) -> Inspection:
    """The inspection with one deployment alone, changed; `config` and `submitted` are merged."""
    one = next(s for s in seen.subjects if s.deployment.target.application == application)
    deployment = one.deployment
    config = {**copy.deepcopy(dict(deployment.config)), **changed.pop("config", {})}
    submitted = {**(deployment.submitted or {}), **changed.pop("submitted", {})}
    scaling = changed.pop("scaling", None)
    if scaling is not None:
        config["autoscaling_config"] = {**config["autoscaling_config"], **scaling}
    of_deployment = {
        name: changed.pop(name)
        for name in ("status", "application_status", "message", "external", "requested")
        if name in changed
    }
    changed_one = replace(deployment, config=config, submitted=submitted, **of_deployment)
    return replace(seen, subjects=(replace(one, deployment=changed_one, **changed),))


def found(seen: Inspection, rule: str) -> list[Finding]:
    return [finding for finding in judge(seen) if finding.rule == rule]


def severities(seen: Inspection, rule: str) -> list[str]:
    return [finding.severity for finding in found(seen, rule)]


def said(seen: Inspection, rule: str) -> list[str]:
    return [finding.reason for finding in judge(seen) if finding.rule == rule]
