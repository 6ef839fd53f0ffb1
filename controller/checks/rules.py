"""The production rules in one order; each is a pure function of what was found out."""

from collections.abc import Iterator
from functools import wraps

from controller.checks import of_clusters as cluster
from controller.checks import of_deployments as deployment
from controller.checks.findings import Finding, Inspection
from controller.checks.of_clusters import ClusterRule, Located
from controller.checks.of_deployments import DeploymentRule


def each(rule: DeploymentRule) -> ClusterRule:
    """The same rule on every deployment of an inspection."""

    @wraps(rule)
    def judged(seen: Inspection) -> Iterator[Located]:
        for subject in seen.subjects:
            problem = rule(subject)
            if problem is not None:
                severity, reason, fix = problem
                yield severity, subject.where, reason, fix

    return judged


RULES: tuple[ClusterRule, ...] = (
    cluster.unanswered,
    cluster.serve_answers,
    cluster.prometheus_answers,
    cluster.nothing_to_scale,
    cluster.not_deployed,
    each(deployment.not_scalable),
    each(deployment.failed_deployment),
    each(deployment.can_be_scaled),
    each(deployment.refused_actuation),
    each(deployment.scaled_in_code_too),
    cluster.autoscaling_in_args,
    each(deployment.initial_replicas_set),
    each(deployment.unlimited_target),
    each(deployment.target_at_the_limit),
    each(deployment.unlimited_ongoing),
    each(deployment.fixed_replicas),
    each(deployment.cold_from_zero),
    each(deployment.single_replica),
    each(deployment.cut_streams),
    each(deployment.default_health_checks),
    each(deployment.slow_give_back),
    each(deployment.floor_held_back),
    each(deployment.kept_by_external),
    each(deployment.other_ways),
    each(deployment.maximum_above_serve_s),
    cluster.gang_without_node,
    cluster.mixed_ray_versions,
    cluster.open_dashboard,
    each(deployment.without_signals),
    each(deployment.unmeasured_slo),
    cluster.wrong_scrape_interval,
    cluster.late_signals,
)


def judge(seen: Inspection) -> Iterator[Finding]:
    """Every finding, in the order of the rules."""
    for rule in RULES:
        for severity, where, reason, fix in rule(seen):
            yield Finding(rule.__name__, severity, where, reason, fix)
