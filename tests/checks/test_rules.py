"""Each production rule on what a real cluster answered: what it finds, and where it is silent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.adapters.prometheus.audit import Cadence, between
from controller.adapters.serve.view import Actuation
from controller.checks.findings import Inspection
from controller.checks.rules import RULES, judge
from controller.core.types import DeploymentId, Readings, Sample
from tests.checks.findings import found, said, severities, subject

GIGA = 1_000_000_000


def errors(seen: Inspection) -> set[tuple[str, str]]:
    return {(f.rule, f.where) for f in judge(seen) if f.severity == "error"}


def test_every_planted_mistake_is_an_error_and_nothing_else_is(seen: Inspection) -> None:
    assert errors(seen) == {
        ("target_at_the_limit", "hasty/Model"),
        ("initial_replicas_set", "hasty/Model"),
        ("cut_streams", "hasty/Model"),
        ("cold_from_zero", "zero/Model"),
        ("scaled_in_code_too", "coded/Model"),
        ("autoscaling_in_args", "argued"),
        ("refused_actuation", "argued/Model"),
        ("unlimited_target", "argued/Model"),
        ("gang_without_node", "gang/Model"),
    }


@pytest.mark.parametrize(
    ("rule", "where"),
    [
        ("fixed_replicas", {"fixed/Model", "chat/Ingress"}),
        ("default_health_checks", {"hasty/Model", "chat/Ingress"}),
        ("unlimited_ongoing", {"argued/Model"}),
        ("slow_give_back", {"argued/Model", "chat/LLM"}),
        ("kept_by_external", {"coded/Model"}),
    ],
)
def test_a_warning_stands_where_its_cause_does(
    seen: Inspection, rule: str, where: set[str]
) -> None:
    found = {f.where for f in judge(seen) if f.rule == rule}
    assert found == where


def test_every_finding_but_information_says_how_to_mend_it(seen: Inspection) -> None:
    for finding in judge(seen):
        assert finding.reason
        assert finding.fix or finding.severity == "info", finding


def test_rules_stand_once_and_are_named_apart() -> None:
    names = [rule.__name__ for rule in RULES]
    assert len(names) == len(set(names))


Case = tuple[str, str, str, dict[str, Any], list[str]]
CASES: list[Case] = [
    ("a deployment that failed", "failed_deployment", "sound", {"status": "UNHEALTHY"}, ["error"]),
    (
        "an application that failed",
        "failed_deployment",
        "sound",
        {"application_status": "DEPLOY_FAILED", "message": "Traceback\nKeyError: 'x'"},
        ["error"],
    ),
    ("a healthy one", "failed_deployment", "sound", {}, []),
    (
        "a target below the limit",
        "target_at_the_limit",
        "hasty",
        {"scaling": {"target_ongoing_requests": 3}},
        [],
    ),
    (
        "A8 a target above the limit",
        "target_at_the_limit",
        "hasty",
        {"scaling": {"target_ongoing_requests": 9}},
        ["error"],
    ),
    ("the target of ray.serve.llm is another rule's", "target_at_the_limit", "argued", {}, []),
    (
        "a bounded target",
        "unlimited_target",
        "argued",
        {"scaling": {"target_ongoing_requests": 16}},
        [],
    ),
    ("slots said here", "unlimited_ongoing", "argued", {"slots": 64.0}, []),
    (
        "initial_replicas gone",
        "initial_replicas_set",
        "hasty",
        {"scaling": {"initial_replicas": None}},
        [],
    ),
    ("zero replicas that start at once", "cold_from_zero", "zero", {"start_s": 1.5}, []),
    ("zero replicas that start soon", "cold_from_zero", "zero", {"start_s": 12.0}, ["warning"]),
    ("zero replicas that start late", "cold_from_zero", "zero", {"start_s": 95.0}, ["error"]),
    ("a floor of one", "cold_from_zero", "zero", {"scaling": {"min_replicas": 1}}, []),
    (
        "our own floor of zero under external",
        "cold_from_zero",
        "coded",
        {"min_replicas": 0, "config": {"autoscaling_config": None}},
        ["error"],
    ),
    ("two replicas at least", "single_replica", "sound", {"min_replicas": 2}, []),
    ("one replica at least", "single_replica", "sound", {"min_replicas": 1}, ["warning"]),
    ("a fixed count of two", "single_replica", "fixed", {"requested": 2}, []),
    ("streams within the shutdown timeout", "cut_streams", "hasty", {"stay_p99_s": (0.5, 1.0)}, []),
    (
        "streams that may outlast it",
        "cut_streams",
        "hasty",
        {"stay_p99_s": (0.5, 2.0)},
        ["warning"],
    ),
    ("A7 streams that surely do", "cut_streams", "hasty", {"stay_p99_s": (1.0, 2.0)}, ["error"]),
    (
        "streams beyond every bucket",
        "cut_streams",
        "hasty",
        {"stay_p99_s": (600.0, float("inf"))},
        ["error"],
    ),
    ("no stream seen", "cut_streams", "hasty", {"stay_p99_s": None}, []),
    (
        "a period that was set",
        "default_health_checks",
        "hasty",
        {"config": {"health_check_period_s": 5.0}},
        [],
    ),
    (
        "the default, chosen",
        "default_health_checks",
        "hasty",
        {"submitted": {"health_check_period_s": 10}},
        [],
    ),
    ("given back at once", "slow_give_back", "sound", {"scaling": {"downscale_delay_s": 0}}, []),
    ("Serve's maximum kept", "maximum_above_serve_s", "sound", {"max_replicas": 3}, []),
    ("ours above it", "maximum_above_serve_s", "sound", {"max_replicas": 4}, ["warning"]),
    ("listed and fixed", "not_scalable", "fixed", {"listed": True}, ["error"]),
    ("not listed and fixed", "not_scalable", "fixed", {}, []),
    (
        "external without autoscaling",
        "scaled_in_code_too",
        "coded",
        {"config": {"autoscaling_config": None}},
        [],
    ),
    (
        "signals there",
        "without_signals",
        "sound",
        {"readings": Readings(0.0, arrivals={"a": Sample(1, 0)}, ongoing={"r": Sample(1, 0)})},
        ["info"],
    ),
    (
        "no arrivals",
        "without_signals",
        "sound",
        {"readings": Readings(0.0, arrivals={}, ongoing={"r": Sample(1, 0)})},
        ["warning"],
    ),
    (
        "a bucket at the SLO",
        "unmeasured_slo",
        "sound",
        {"late_bounds": ("ttft", [1.0, 2.0, float("inf")])},
        [],
    ),
    (
        "no bucket at the SLO",
        "unmeasured_slo",
        "sound",
        {"late_bounds": ("ttft", [1.0, 2.5])},
        ["warning"],
    ),
]


@pytest.mark.parametrize(
    ("rule", "application", "changed", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_rule_on_one_deployment(
    seen: Inspection, rule: str, application: str, changed: dict[str, Any], expected: list[str]
) -> None:
    assert severities(subject(seen, application, **changed), rule) == expected


@pytest.mark.parametrize(
    ("strategy", "nodes", "elastic", "expected"),
    [
        ("STRICT_PACK", {"a": {"CPU": 8.0, "GPU": 4.0}}, False, []),
        (
            "STRICT_PACK",
            {"a": {"CPU": 8.0, "GPU": 2.0}, "b": {"CPU": 8.0, "GPU": 2.0}},
            False,
            ["error"],
        ),
        (
            "PACK",
            {"a": {"CPU": 8.0, "GPU": 2.0}, "b": {"CPU": 8.0, "GPU": 2.0}},
            False,
            ["warning"],
        ),
        ("PACK", {"a": {"CPU": 8.0, "GPU": 2.0}}, False, ["error"]),
        ("STRICT_PACK", {"a": {"CPU": 8.0}}, True, ["warning"]),
    ],
    ids=[
        "one node holds it",
        "strict over two nodes",
        "packed over two nodes",
        "too few",
        "a node may come",
    ],
)
def test_a_gang_needs_a_node(
    seen: Inspection,
    strategy: str,
    nodes: Mapping[str, Mapping[str, float]],
    elastic: bool,
    expected: list[str],
) -> None:
    changed = replace(subject(seen, "gang", strategy=strategy), nodes=nodes, elastic=elastic)
    assert severities(changed, "gang_without_node") == expected


def test_a_gang_says_what_it_needs(seen: Inspection) -> None:
    [finding] = found(seen, "gang_without_node")
    assert "4 x {CPU: 0.01, GPU: 1}" in finding.reason


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://10.0.0.2:8265", ["error"]),
        ("https://ray.example.com", ["error"]),
        ("http://127.0.0.1:8265", []),
        ("http://localhost:8265", []),
        ("http://[::1]:8265", []),
        ("http://localhost.example.com:8265", ["error"]),
    ],
)
def test_a_dashboard_open_to_others_is_an_error(
    seen: Inspection, url: str, expected: list[str]
) -> None:
    assert severities(replace(seen, open_urls=(url,)), "open_dashboard") == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"10.0.0.2": "2.60.0", "10.0.0.3": "2.60.0"}, []),
        ({"10.0.0.2": "2.60.0", "10.0.0.3": "2.59.1"}, ["error"]),
        ({"10.0.0.3": "2.59.1"}, ["error"]),
        (None, []),
    ],
    ids=["alike", "one differs", "all differ from the head", "not known"],
)
def test_nodes_run_one_ray(
    seen: Inspection, versions: dict[str, str] | None, expected: list[str]
) -> None:
    assert severities(replace(seen, versions=versions), "mixed_ray_versions") == expected


@pytest.mark.parametrize(
    ("reported_s", "scraped_s", "tick_s", "severity", "mended"),
    [
        (
            10.0,
            10.0,
            10.0,
            "warning",
            ["RAY_metrics_report_interval_ms", "scrape_interval", "tick_s"],
        ),
        (5.0, 5.0, 5.0, "info", []),
        (10.0, 5.0, 5.0, "info", []),
        (10.0, 5.0, 10.0, "warning", ["RAY_metrics_report_interval_ms", "tick_s"]),
        (1.0, 15.0, 1.0, "warning", ["scrape_interval"]),
    ],
    ids=["the defaults", "five each", "Ray's default alone", "two", "slow scrapes"],
)
def test_old_signals_are_named_with_what_shortens_them(
    seen: Inspection,
    reported_s: float,
    scraped_s: float,
    tick_s: float,
    severity: str,
    mended: list[str],
) -> None:
    [finding] = found(
        replace(seen, cadence=Cadence(scraped_s, reported_s), tick_s=tick_s), "late_signals"
    )
    assert finding.severity == severity
    for setting in ("RAY_metrics_report_interval_ms", "scrape_interval", "tick_s"):
        assert (setting in finding.fix) == (setting in mended)


@pytest.mark.parametrize(
    ("scraped_s", "expected"), [(1.0, []), (1.4, []), (15.0, ["error"]), (0.3, ["warning"])]
)
def test_the_scrape_interval_is_what_the_settings_say(
    seen: Inspection, scraped_s: float, expected: list[str]
) -> None:
    changed = replace(seen, cadence=Cadence(scraped_s, scraped_s))
    assert severities(changed, "wrong_scrape_interval") == expected


def test_autoscaling_in_args_is_harmless_once_it_is_listed(seen: Inspection) -> None:
    listed = {"autoscaling_config": {"min_replicas": 1}}
    assert severities(subject(seen, "argued", submitted=listed), "autoscaling_in_args") == [
        "warning"
    ]
    assert severities(replace(seen, arguments={"argued": {}}), "autoscaling_in_args") == []


def test_a_deployment_of_the_settings_must_be_there(seen: Inspection) -> None:
    gone = replace(seen, missing=(DeploymentId("chat", "Missing"),))
    assert [f.where for f in found(gone, "not_deployed")] == ["chat/Missing"]


def test_nothing_to_scale_is_an_error(seen: Inspection) -> None:
    assert severities(seen, "nothing_to_scale") == []
    assert severities(replace(seen, subjects=()), "nothing_to_scale") == ["error"]


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ({1.0: 99, 2.0: 100, float("inf"): 100}, (0.0, 1.0)),
        ({1.0: 98, 2.0: 100, float("inf"): 100}, (1.0, 2.0)),
        ({1.0: 0, 2.0: 0, float("inf"): 5}, (2.0, float("inf"))),
        ({float("inf"): 0}, None),
        ({}, None),
    ],
    ids=["all within the first", "just above it", "beyond all", "none counted", "no histogram"],
)
def test_a_quantile_lies_between_bounds(
    buckets: dict[float, float], expected: tuple[float, float] | None
) -> None:
    assert between(buckets, 0.99) == expected


OURS = {"policy": {"policy_function": "a:LeadtimePolicy", "policy_kwargs": {}}}


def test_the_other_ways_are_named_with_what_they_need(seen: Inspection) -> None:
    (floor,) = said(subject(seen, "chat", actuation=Actuation.FLOOR), "other_ways")
    assert "policy: its autoscaling_config has no policy of class LeadtimePolicy" in floor
    assert "external: external_scaler_enabled is not true" in floor
    (policy,) = said(subject(seen, "chat", actuation=Actuation.POLICY, scaling=OURS), "other_ways")
    assert policy.startswith("could also be scaled by floor")


def test_what_holds_our_floor_back_is_a_warning(seen: Inspection) -> None:
    late = subject(
        seen, "chat", actuation=Actuation.POLICY, scaling={**OURS, "upscale_delay_s": 30}
    )
    assert "upscale_delay_s is 30" in said(late, "floor_held_back")[0]
    prompt = {**OURS, "upscale_delay_s": 0, "downscale_delay_s": 0}
    right = subject(seen, "chat", actuation=Actuation.POLICY, scaling=prompt)
    assert said(right, "floor_held_back") == []
