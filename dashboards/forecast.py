"""Forecast: is what we expected what came?"""

from controller.adapters.telemetry import names
from dashboards.model import Dashboard, Panel, Query, Row, Variable
from dashboards.queries import BY, EACH, OF_DEPLOYMENT, ON, count, deployment_variables

DEMAND = f"max {BY} ({names.DEMAND}{{{OF_DEPLOYMENT}}})"
TRUST = {0: ("distrusted", "orange"), 1: ("trusted", "green")}
WORST = {0.5: "median", 0.9: "90 %", 0.99: "99 %"}


def made(quantile: float, horizon: str) -> str:
    """What was forecast for the present, one horizon ago."""
    labels = f'{OF_DEPLOYMENT},horizon="{horizon}",quantile="{quantile:g}"'
    shift = " offset ${ahead}s" if horizon == "ahead" else ""
    return f"max {BY} ({names.FORECAST}{{{labels}}}{shift})"


def now(quantile: float) -> str:
    """What is forecast now, for one lead ahead."""
    labels = f'{OF_DEPLOYMENT},horizon="ahead",quantile="{quantile:g}"'
    return f"max {BY} ({names.FORECAST}{{{labels}}})"


LOAD = Row(
    "Load and forecast",
    (
        Panel(
            "Load against its forecast",
            "Arrivals, and the median, 90 % and 99 % quantile of what was forecast for "
            "this moment one lead ahead of it: drawn at the time it was made for.",
            "reqps",
            (
                Query(DEMAND, f"arrivals {EACH}"),
                *(Query(made(q, "ahead"), f"{said} {EACH}") for q, said in WORST.items()),
            ),
            kind="band",
            alert="LeadtimeForecastDistrusted",
            width=24,
        ),
        Panel(
            "Forecast for one lead ahead",
            "What is expected for the window that a replica asked for now will serve.",
            "reqps",
            tuple(Query(now(q), f"{said} {EACH}") for q, said in WORST.items()),
            width=12,
        ),
        Panel(
            "How far ahead",
            "When the window opens that the forecast is for: the learned lead time and a tick.",
            "s",
            (
                Query(
                    f'max {BY} ({names.HORIZON}{{{OF_DEPLOYMENT},horizon="ahead"}})',
                    EACH,
                ),
            ),
            alert="ServeColdStartSlow",
            width=12,
        ),
    ),
)
TRUST_ROW = Row(
    "Can it be trusted?",
    (
        Panel(
            "Coverage",
            "Share of outcomes of the last season at or below each quantile. The 90 % quantile "
            "should cover 90 %.",
            "percentunit",
            (
                Query(
                    f"max by (application, deployment, horizon, quantile) "
                    f"({names.COVERAGE}{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{horizon}} q{{quantile}}",
                ),
            ),
            alert="LeadtimeForecastDistrusted",
            most=1,
        ),
        Panel(
            "Error by horizon",
            "Distance between arrivals and the median forecast for that moment: of the window that "
            "opens at once, and one lead ahead.",
            "reqps",
            tuple(
                Query(
                    f"abs({DEMAND} - {ON} {made(0.5, horizon)})",
                    f"{horizon} {EACH}",
                )
                for horizon in ("near", "ahead")
            ),
            alert="LeadtimeForecastDistrusted",
        ),
        Panel(
            "Time above the 99 % quantile",
            "Share of the chosen time in which more arrived than the 99 % quantile foresaw.",
            "percentunit",
            (
                Query(
                    f"avg_over_time(({DEMAND} > bool {ON} {made(0.99, 'ahead')})[$__range:])",
                    EACH,
                ),
            ),
            kind="stat",
            alert="LeadtimeForecastDistrusted",
            steps={0.05: "orange"},
            most=1,
        ),
        Panel(
            "Model in force",
            "Which model makes the forecast for one lead ahead.",
            "short",
            (
                Query(
                    f"max by (application, deployment, model) "
                    f'({names.MODEL}{{{OF_DEPLOYMENT},horizon="ahead"}})',
                    "{{deployment}} {{model}}",
                ),
            ),
            kind="states",
            alert="LeadtimeFitsFailing",
            mappings={1: ("in force", "blue")},
        ),
        Panel(
            "Trust",
            "Whether the model's quantiles hold; while they do not, last-value quantiles are used "
            "where they are higher.",
            "short",
            (
                Query(
                    f"min by (application, deployment, horizon) "
                    f"({names.FORECAST_TRUSTED}{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{horizon}}",
                ),
            ),
            kind="states",
            alert="LeadtimeForecastDistrusted",
            mappings=TRUST,
        ),
        Panel(
            "Fits",
            "Model fits by result.",
            "short",
            (
                Query(
                    count(names.FITS, by="application, deployment, result"),
                    "{{deployment}} {{result}}",
                ),
            ),
            kind="bars",
            alert="LeadtimeFitsFailing",
        ),
    ),
)
DASHBOARD = Dashboard(
    "leadtime-forecast",
    "Leadtime / Forecast",
    "Load against the band that was forecast for it, and whether the forecast can be trusted.",
    (LOAD, TRUST_ROW),
    (
        *deployment_variables(names.WANTED),
        Variable(
            "ahead",
            "Seconds ahead",
            f'query_result(round(max({names.HORIZON}{{{OF_DEPLOYMENT},horizon="ahead"}})))',
            regex=r"/.* (\d+) \d+$/",
            single=True,
            hidden=True,
        ),
    ),
)
