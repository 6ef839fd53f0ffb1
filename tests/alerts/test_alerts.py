"""Every alert: a firing and a silent case in promtool, a heading in the runbook, true names."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import generate
from alerts.generate import ALERTS, DURATION, UNITS_MS, scaled
from controller.adapters.prometheus import names as read
from controller.adapters.telemetry import names as ours
from controller.core.types import Reason
from tests.alerts.cases import CASES
from tests.alerts.cases.case import Case

ALERTS_FOLDER = Path(generate.__file__).parent
RUNBOOK = (ALERTS_FOLDER / "runbook.md").read_text()
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: make setup"
)
RECORDED = re.compile(r"leadtime:[a-z_]+:?[a-z_]*")
METRIC = re.compile(r"\b(?:ray|leadtime|DCGM)_[A-Za-z0-9_]+")


def of_alert(name: str) -> dict[str, Any]:
    alerts = [rule for rule in all_rules() if rule.get("alert") == name]
    assert len(alerts) == 1
    return alerts[0]


def all_rules(scale: int = 1) -> list[dict[str, Any]]:
    return [rule for group in generate.rules(scale)["groups"] for rule in group["rules"]]


def promtool_test(case: Case) -> dict[str, Any]:
    """The case in promtool's words."""
    expected = []
    if case.fires is not None:
        labels, summary = case.fires
        rule = of_alert(case.alert)
        expected = [
            {
                "exp_labels": {**rule["labels"], **labels},
                "exp_annotations": {**rule["annotations"], "summary": summary},
            }
        ]
    return {
        "name": f"{case.alert}: {case.name}",
        "interval": "1m",
        "input_series": [{"series": s, "values": v} for s, v in case.series.items()],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": case.alert, "exp_alerts": expected}
        ],
    }


def promtool(folder: Path, cases: list[Case], every: str) -> subprocess.CompletedProcess[str]:
    """Run the cases, with the rules evaluated so often."""
    (folder / "rules.yml").write_text(generate.render_rules())
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": every,
        "group_eval_order": [group["name"] for group in generate.rules()["groups"]],
        "tests": [promtool_test(case) for case in cases],
    }
    (folder / "tests.yml").write_text(yaml.safe_dump(tests))
    command = ["promtool", "test", "rules", "tests.yml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@needs_promtool
@pytest.mark.parametrize(("long", "every"), [(False, "1m"), (True, "4m")], ids=["hours", "days"])
def test_every_alert_fires_and_keeps_silent_as_it_should(
    long: bool, every: str, tmp_path: Path
) -> None:
    cases = [case for case in CASES if (milliseconds(case.at) > 7_200_000) is long]
    done = promtool(tmp_path, cases, every)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("alert", ["LeadtimeConflict", "SloBurnFast"])
def test_a_wrong_expectation_is_found(alert: str, tmp_path: Path) -> None:
    firing = next(case for case in CASES if case.alert == alert and case.fires)
    silent = Case(firing.alert, "expected silent", firing.series, firing.at)
    assert promtool(tmp_path, [silent], "1m").returncode != 0


def test_each_alert_has_a_firing_and_a_silent_case() -> None:
    for alert in ALERTS:
        of_this = [case for case in CASES if case.alert == alert.name]
        assert any(case.fires for case in of_this), f"{alert.name} has no firing case"
        assert any(not case.fires for case in of_this), f"{alert.name} has no silent case"


def test_the_committed_files_are_what_the_generator_writes() -> None:
    for name, made in (
        ("rules.yml", generate.render_rules()),
        ("alertmanager.yml", generate.render_alertmanager()),
    ):
        committed = (ALERTS_FOLDER / name).read_text()
        assert committed == made, f"{name} is not what `python -m alerts` writes: run it"


def test_each_alert_says_how_grave_since_when_what_and_where_to_look() -> None:
    for alert in ALERTS:
        rule = of_alert(alert.name)
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert scaled(rule["for"], 1)
        assert "$value" in rule["annotations"]["summary"], f"{alert.name}: no number"
        assert rule["annotations"]["runbook_url"].endswith(f"#{alert.name.lower()}")
        for label in alert.by:
            assert label in rule["annotations"]["summary"] or label == "window"


def test_the_runbook_has_each_alert_and_no_other() -> None:
    headings = re.findall(r"^## (\S+)$", RUNBOOK, re.M)
    assert headings == [alert.name for alert in ALERTS]
    for section in re.split(r"^## ", RUNBOOK, flags=re.M)[1:]:
        name = section.split("\n", 1)[0]
        for part in ("**Meaning.**", "**First look.**", "**Cause.**", "**Fix.**"):
            assert part in section, f"{name} lacks {part}"
        assert "`" in section.split("**First look.**")[1].split("**Cause.**")[0]


def test_alerts_of_a_reason_use_the_word_of_the_enum() -> None:
    used = set()
    for alert in ALERTS:
        for matched in re.findall(r'reason=~?"([a-z_|]+)"', alert.expr):
            words = matched.split("|")
            assert {Reason(word) for word in words}
            used |= set(words)
            assert alert.name == "Leadtime" + "".join(p.title() for p in words[0].split("_"))
    assert used >= {"blind", "stale", "conflict", "unschedulable", "serve_unreachable"}


def test_our_metrics_exist_under_these_names() -> None:
    exported = {*ours.GAUGES, *ours.COUNTERS, ours.TICK}
    recorded = {rule["record"] for rule in all_rules() if "record" in rule}
    for rule in all_rules():
        used = METRIC.findall(RECORDED.sub("", rule["expr"]))
        unknown = {name for name in used if name.startswith("leadtime_")} - exported
        assert not unknown, f"{rule.get('alert') or rule['record']}: nobody exports {unknown}"
        assert set(RECORDED.findall(rule["expr"])) <= recorded


def test_metrics_that_the_daemon_reads_too_have_one_name() -> None:
    text = generate.render_rules()
    for name in (
        *read.spellings(read.OUTPUT_TOKENS)[:1],
        read.QUEUED,
        read.ONGOING,
        read.KV_CACHE,
        read.ROUTER_WAIT,
        read.CLIENT_TTFT,
        read.GPU_MEMORY_USED,
        read.GPU_MEMORY_FREE,
        read.DCGM_MEMORY_USED,
        read.DCGM_MEMORY_FREE,
    ):
        assert re.search(rf"\b{name}\b", text), f"{name} is read by the daemon, not by the rules"


def milliseconds(duration: str) -> int:
    return int(re.sub(r"\D", "", duration)) * UNITS_MS[re.sub(r"\d", "", duration)]


def split(text: str) -> tuple[str, list[int]]:
    """A text with its durations taken out, and these in milliseconds; a quoted label is none."""
    pattern = rf'(?<!")\b{DURATION}\b(?!")'
    return re.sub(pattern, "T", text), [milliseconds(d) for d in re.findall(pattern, text)]


def test_at_a_sixtieth_only_durations_differ_and_all_by_the_same_factor() -> None:
    for whole, small in zip(all_rules(), all_rules(60), strict=True):
        assert whole.get("labels") == small.get("labels")
        texts = [(whole["expr"], small["expr"])]
        if "alert" in whole:
            texts.append((whole["for"], small["for"]))
            texts.append((whole["annotations"]["summary"], small["annotations"]["summary"]))
        for one, other in texts:
            (text, durations), (same, shorter) = split(one), split(other)
            assert text == same
            assert durations == [60 * d for d in shorter]


@pytest.mark.parametrize(
    ("duration", "scale", "expected"),
    [
        ("5m", 60, "5s"),
        ("30s", 60, "500ms"),
        ("3d", 60, "72m"),
        ("30d", 60, "12h"),
        ("1d", 1, "1d"),
    ],
)
def test_durations(duration: str, scale: int, expected: str) -> None:
    assert scaled(duration, scale) == expected


@pytest.mark.parametrize(("duration", "scale"), [("5", 1), ("1s", 7), ("1ms", 60), ("-1m", 1)])
def test_what_is_no_duration_or_has_no_whole_part_is_refused(duration: str, scale: int) -> None:
    with pytest.raises(ValueError, match=re.escape(duration)):
        scaled(duration, scale)


def test_nothing_is_made_zero_that_is_absent() -> None:
    assert "vector(0)" not in generate.render_rules()
