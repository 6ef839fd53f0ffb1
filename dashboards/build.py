"""Grafana's JSON, schema of Grafana 11 and 12, from our panels through Grafana's own builders."""

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from grafana_foundation_sdk.builders import common, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shown
from grafana_foundation_sdk.models import dashboard as model

from controller.adapters.telemetry import names
from dashboards import cluster, decisions, forecast, itself, serving
from dashboards.model import Dashboard, Panel, Variable
from dashboards.queries import OF_DEPLOYMENT, RATE

DASHBOARDS: tuple[Dashboard, ...] = (
    serving.DASHBOARD,
    forecast.DASHBOARD,
    decisions.DASHBOARD,
    cluster.DASHBOARD,
    itself.DASHBOARD,
)
TAG = "leadtime"
RUNBOOK = "alerts/runbook.md"
DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
# The same number has the same colour wherever it is drawn.
COLOURS: Mapping[str, str] = {
    "wanted": "purple",
    "requested": "blue",
    "ready": "green",
    "Serve's wish": "orange",
    "minimum": "rgba(128, 128, 128, 0.6)",
    "maximum": "rgba(128, 128, 128, 0.6)",
    "arrivals": "green",
    "median": "blue",
    "90 %": "light-blue",
    "99 %": "super-light-blue",
}
Builder = timeseries.Panel | stat.Panel | statetimeline.Panel


def render(board: Dashboard) -> str:
    """The dashboard's JSON as committed."""
    return json.dumps(_made(board), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def as_dict(board: Dashboard) -> dict[str, Any]:
    """The same as plain values."""
    found: dict[str, Any] = json.loads(render(board))
    return found


def _made(board: Dashboard) -> model.Dashboard:
    made = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(_others())
        .annotation(_changes())
        .annotation(_alerts())
    )
    datasource = build.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    made = made.with_variable(datasource)
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    made = made.with_variable(build.ConstantVariable("runbook").value(RUNBOOK))
    number = 0
    for row in board.rows:
        number += 1
        made = made.with_row(build.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            made = made.with_panel(_panel(panel, number))
    return made.build()


def _panel(panel: Panel, number: int) -> Builder:
    made = MAKERS.get(panel.kind, _lines)(panel)
    made = made.id(number).title(panel.title).description(panel.description)
    made = made.datasource(DATASOURCE).unit(panel.unit).height(8).span(panel.width)
    if panel.least is not None and panel.kind != "states":
        made = made.min(panel.least)
    if panel.most is not None:
        made = made.max(panel.most)
    if panel.steps:
        made = made.thresholds(_thresholds(panel.steps))
    if panel.mappings:
        made = made.mappings([_mapping(panel.mappings)])
    if panel.alert is not None:
        made = made.links([_runbook(panel.alert)])
    for ref, query in zip("ABCDEFGH", panel.queries, strict=False):
        target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend).ref_id(ref)
        target = target.datasource(DATASOURCE)
        made = made.with_target(target.instant() if panel.kind == "stat" else target.range())
    return made


def _lines(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(shown.LegendDisplayMode.LIST)
    legend = legend.placement(shown.LegendPlacement.BOTTOM).show_legend(True)
    made = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(60 if panel.kind == "bars" else 8)
        .show_points(shown.VisibilityMode.NEVER)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(shown.TooltipDisplayMode.MULTI))
    )
    if panel.kind == "bars":
        made = made.draw_style(shown.GraphDrawStyle.BARS)
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(shown.StackingMode.NORMAL))
    if panel.steps:
        style = common.GraphThresholdsStyleConfig().mode(shown.GraphThresholdsStyleMode.DASHED)
        made = made.thresholds_style(style)
    for words, colour in COLOURS.items():
        if any(query.legend.startswith(words) for query in panel.queries):
            made = made.override_by_regexp(f"^{words}.*", _coloured(words, colour, panel))
    return made


def _coloured(words: str, colour: str, panel: Panel) -> list[model.DynamicConfigValue]:
    fixed = {"mode": "fixed", "fixedColor": colour}
    found = [model.DynamicConfigValue(id_val="color", value=fixed)]
    if panel.kind == "band" and words == "arrivals":
        found.append(model.DynamicConfigValue(id_val="custom.lineWidth", value=2))
        found.append(model.DynamicConfigValue(id_val="custom.fillOpacity", value=0))
    if words in ("minimum", "maximum"):
        dashed = {"fill": "dash", "dash": [8, 8]}
        found.append(model.DynamicConfigValue(id_val="custom.lineStyle", value=dashed))
        found.append(model.DynamicConfigValue(id_val="custom.fillOpacity", value=0))
    return found


def _stat(panel: Panel) -> stat.Panel:
    made = stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    made = made.graph_mode(shown.BigValueGraphMode.NONE)
    return made.color_mode(shown.BigValueColorMode.VALUE)


def _states(panel: Panel) -> statetimeline.Panel:
    return statetimeline.Panel().merge_values(True).show_value(shown.VisibilityMode.AUTO)


def _thresholds(steps: Mapping[float, str]) -> build.ThresholdsConfig:
    base = [] if float("-inf") in steps else [model.Threshold(value=None, color="green")]
    made = [
        model.Threshold(value=value if isfinite(value) else None, color=colour)
        for value, colour in sorted(steps.items())
    ]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps([*base, *made])


def _mapping(mappings: Mapping[int, tuple[str, str]]) -> model.ValueMap:
    options = {
        str(value): model.ValueMappingResult(text=text, color=colour, index=index)
        for index, (value, (text, colour)) in enumerate(mappings.items())
    }
    return model.ValueMap(options=options)


def _runbook(alert: str) -> build.DashboardLink:
    link = build.DashboardLink(f"Runbook: {alert}").type(model.DashboardLinkType.LINK)
    return link.url(f"${{runbook}}#{alert.lower()}").target_blank(True)


def _others() -> build.DashboardLink:
    link = build.DashboardLink("Leadtime").type(model.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).include_vars(True).keep_time(True).as_dropdown(True)


def _variable(variable: Variable) -> build.QueryVariable:
    made = (
        build.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(DATASOURCE)
        .query(variable.query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
    )
    if variable.regex:
        made = made.regex(variable.regex)
    if variable.hidden:
        made = made.hide(model.VariableHide.HIDE_VARIABLE)
    if variable.single:
        return made
    everything = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    return made.multi(True).include_all(True).all_value(".*").current(everything)


def _changes() -> build.AnnotationQuery:
    changed = f"changes({names.WANTED}{{{OF_DEPLOYMENT}}}[{RATE}]) > 0"
    return _annotation("Decisions", changed, "purple")


def _alerts() -> build.AnnotationQuery:
    firing = 'ALERTS{alertstate="firing",layer=~"slo|serving|controller|cluster"}'
    return _annotation("Alerts", firing, "red")


def _annotation(name: str, expr: str, colour: str) -> build.AnnotationQuery:
    made = build.AnnotationQuery().name(name).datasource(DATASOURCE).enable(True)
    return made.icon_color(colour).expr(expr)


MAKERS: Mapping[str, Callable[[Panel], Builder]] = {"stat": _stat, "states": _states}
