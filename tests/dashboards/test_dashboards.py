"""The dashboards: generated files are fresh, our rules hold, names are true."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import yaml

from alerts.generate import ALERTS
from controller.adapters.grafana import DATASOURCE_NAME, DATASOURCE_UID, FOLDER_TITLE, FOLDER_UID
from controller.adapters.hook_metrics import OVERRIDES
from controller.adapters.prometheus import names as read
from controller.adapters.telemetry import names as ours
from controller.core.types import Reason
from dashboards import itself, lint
from dashboards.__main__ import HERE, files
from dashboards.build import DASHBOARDS, as_dict
from dashboards.model import Dashboard, Query, Row
from dashboards.proof import filled, queries

EXPRESSIONS = [query.expr for query in queries()]
METRIC = re.compile(r"\bleadtime_[a-z0-9_]+")
RECORDED = re.compile(r"leadtime:[a-z_]+(?::[a-z_]+)?")
HISTOGRAMS = {f"{ours.TICK}_bucket"}


def test_generated_files_are_what_is_committed() -> None:
    for path, text in files().items():
        assert path.read_text() == text, f"{path.name} is old: run python -m dashboards"
    committed = {path.name for path in (HERE / "json").iterdir()}
    assert committed == {f"{board.uid}.json" for board in DASHBOARDS}


def test_no_dashboard_breaks_a_rule() -> None:
    assert [said for board in DASHBOARDS for said in lint.problems(board)] == []


def test_uids_and_titles_are_unique() -> None:
    assert len({board.uid for board in DASHBOARDS}) == len(DASHBOARDS) == 5
    assert len({board.title for board in DASHBOARDS}) == len(DASHBOARDS)


BROKEN = [
    ("sum(leadtime_leader) or vector(0)", "absent series is not zero"),
    ("rate(ray_x_sum[$__rate_interval])", "_sum is not exact"),
    ('ray_x{application="chat"}', "use a variable"),
    ('ray_x{instance=~"10.0.0.1:.*"}', "use a variable"),
    ("rate(ray_x_total[5m])", "fixed window"),
    ("rate(ray_x_total[$__interval])", "need [$__rate_interval]"),
    ("avg_over_time(ray_x[1h])", "fixed window"),
]


@pytest.mark.parametrize(("expr", "said"), BROKEN, ids=[said for _, said in BROKEN])
def test_a_query_that_breaks_a_rule_is_told(expr: str, said: str) -> None:
    assert any(said in problem for problem in lint.of_query(expr))


@pytest.mark.parametrize(
    "expr",
    [
        'sum by (State) (ray_resources{Name="GPU"})',
        'rate(ray_x_total{application=~"$application"}[$__rate_interval])',
        "avg_over_time((a > bool b)[$__range:])",
    ],
)
def test_a_query_that_breaks_none_is_not(expr: str) -> None:
    assert [*lint.of_query(expr)] == []


def broken(**changes: object) -> Dashboard:
    """Leadtime itself with its first panel changed."""
    board = itself.DASHBOARD
    first, *others = board.rows[0].panels
    panels = (replace(first, **changes), *others)  # type: ignore[arg-type]
    return replace(board, rows=(Row("Loop", panels), *board.rows[1:]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"description": ""}, "no description"),
        ({"unit": "furlong"}, "unit"),
        ({"queries": ()}, "no query"),
        ({"queries": (Query("leadtime_leader", ""),)}, "no legend"),
        ({"title": "Mode"}, "two panels"),
        ({"width": 12}, "right edge"),
    ],
)
def test_a_panel_that_breaks_a_rule_is_told(changes: dict[str, object], said: str) -> None:
    assert any(said in problem for problem in lint.problems(broken(**changes)))


def test_our_metrics_exist_under_these_names() -> None:
    exported = {*ours.GAUGES, *ours.COUNTERS, OVERRIDES} | HISTOGRAMS
    used = {name for expr in EXPRESSIONS for name in METRIC.findall(RECORDED.sub("", expr))}
    assert used <= exported
    unseen = exported - used - {ours.SETPOINT, ours.QUEUED, ours.FIRST_TOKENS}
    unseen -= {ours.LATE_FIRST_TOKENS, ours.OLDEST_PENDING, ours.LIMITED, ours.SLO_TTFT}
    unseen -= {ours.GPU_UTILIZATION, ours.GPU_MEMORY}
    # Once a day: `explain` and the page tell them better than a graph.
    unseen -= {ours.CHOSEN_MODEL, ours.CHOSEN_PRICE, ours.CHOSEN_AT}
    unseen -= {ours.TRIAL_GPU_HOURS, ours.TRIAL_LATE, ours.CHOICES}
    assert unseen == set(), "exported and on no panel"


def test_what_the_daemon_reads_is_on_a_panel_under_the_same_name() -> None:
    text = "\n".join(EXPRESSIONS)
    for name in (*read.SERVE, *read.ENGINE, read.ROUTER_WAIT, read.STARTS, read.CLIENT_TTFT):
        spelled = read.spellings(name)
        assert any(re.search(rf"\b{s}\b", text) for s in spelled), f"{name} is on no panel"


def test_recorded_series_are_those_of_the_rules() -> None:
    rules = yaml.safe_load((HERE.parent / "alerts" / "rules.yml").read_text())
    recorded = {rule.get("record") for group in rules["groups"] for rule in group["rules"]}
    used = {name for expr in EXPRESSIONS for name in RECORDED.findall(expr)}
    assert used
    assert used <= recorded


def test_links_lead_to_headings_of_the_runbook() -> None:
    alerts = {alert.name for alert in ALERTS}
    linked = {panel.alert for board in DASHBOARDS for panel in board.panels} - {None}
    assert linked <= alerts
    assert len(linked) > 20


def test_reasons_are_those_of_the_enum() -> None:
    assert {Reason(word) for word in itself.HOLDS.split("|")}


def test_the_same_number_has_the_same_colour_everywhere() -> None:
    found: dict[str, set[str]] = {}
    for board in DASHBOARDS:
        for panel in as_dict(board)["panels"]:
            for override in panel.get("fieldConfig", {}).get("overrides", ()):
                colour = override["properties"][0]["value"]["fixedColor"]
                found.setdefault(override["matcher"]["options"], set()).add(colour)
    assert {"^wanted.*", "^requested.*", "^ready.*"} <= found.keys()
    assert all(len(colours) == 1 for colours in found.values())


def test_a_renamed_metric_changes_the_json_and_so_fails_the_build() -> None:
    program = (
        "from controller.adapters.telemetry import names\n"
        "names.WANTED = 'leadtime_desired_replicas'\n"
        "from dashboards.__main__ import files\n"
        "print(sum(path.read_text() != text for path, text in files().items()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(DASHBOARDS)  # its annotation is on each of them


def test_variables_are_filled_as_grafana_does() -> None:
    expr = 'label_replace(x{a=~"$application"} offset ${ahead}s, "b", "$1", "c", "(.+)")'
    values = {"application": "chat", "ahead": "7"}
    expected = 'label_replace(x{a=~"chat"} offset 7s, "b", "$1", "c", "(.+)")'
    assert filled(expr, values) == expected
    with pytest.raises(KeyError, match="ahead"):
        filled(expr, {"application": "chat"})


def test_provisioning_is_of_the_same_folder_and_datasource_as_a_push() -> None:
    folder = HERE / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    assert (provider["folder"], provider["folderUid"]) == (FOLDER_TITLE, FOLDER_UID)
    (source,) = yaml.safe_load((folder / "datasources.yaml").read_text())["datasources"]
    assert (source["name"], source["uid"]) == (DATASOURCE_NAME, DATASOURCE_UID)


def test_the_schema_is_one_that_grafana_11_and_12_read() -> None:
    for path in (HERE / "json").iterdir():
        board = json.loads(path.read_text())
        assert 39 <= board["schemaVersion"] <= 41
        kinds = {panel["type"] for panel in board["panels"]}
        assert kinds <= {"row", "timeseries", "stat", "state-timeline"}
