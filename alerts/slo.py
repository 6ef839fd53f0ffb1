"""First tokens in time: the share that was late, and how fast that uses up the error budget.

What clients felt is measured by the served application's histogram `ray_client_ttft_seconds`;
where there is none, or no bucket ends at the SLO, by what Leadtime counts (an upper bound).
Longer windows are means of the same two series, so that each window weighs by its requests.
"""

from alerts.model import Alert, Recording

BY = "by (application, deployment)"
ON = "on (application, deployment)"
FIRST = "leadtime:first_tokens:rate"
LATE = "leadtime:late_first_tokens:rate"
BUDGET = "leadtime:slo_budget:ratio"
BURN = "leadtime:slo_burn_rate"
BUDGET_LEFT = "leadtime:slo_budget_left:ratio"
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
PERIOD = "30d"

_FELT = f"sum {BY} (rate(ray_client_ttft_seconds_count[5m]))"
# A bucket's bound reads "2.0" or "2"; the SLO's value becomes a label to find its bucket.
_IN_TIME = (
    "sum by (application, deployment) (label_replace("
    "sum by (application, deployment, le) (rate(ray_client_ttft_seconds_bucket[5m])), "
    '"le", "$1", "le", "(.+)\\\\.0") '
    "* on (application, deployment, le) group_left () "
    'count_values by (application, deployment) ("le", '
    f"max {BY} (last_over_time(leadtime_slo_ttft_seconds[1d]))))"
)


def _burn(window: str) -> str:
    """The late share of a window as a multiple of the budget: 1 uses up 30 days' in 30 days."""
    if window == "5m":
        return f"{LATE} / {FIRST} / {ON} {BUDGET}"
    late, first = (f"avg_over_time({name}[{window}])" for name in (LATE, FIRST))
    return f"{late} / {first} / {ON} {BUDGET}"


RECORDINGS = (
    Recording(FIRST, f"{_FELT} or {ON} sum {BY} (rate(leadtime_first_tokens_total[5m]))"),
    Recording(
        LATE,
        f"clamp_min({_FELT} - {ON} {_IN_TIME}, 0) "
        f"or {ON} sum {BY} (rate(leadtime_late_first_tokens_total[5m]))",
    ),
    Recording(BUDGET, f"1 - max {BY} (last_over_time(leadtime_slo_attainment_ratio[1d]))"),
    *(Recording(BURN, _burn(window), {"window": window}) for window in WINDOWS),
)
BUDGET_RECORDINGS = (Recording(BUDGET_LEFT, f"1 - {_burn(PERIOD)}"),)


def _burns(factor: float, long: str, short: str) -> str:
    return (
        f'{BURN}{{window="{long}"}} > {factor:g} and {ON} {BURN}{{window="{short}"}} > {factor:g}'
    )


def _burn_alert(name: str, factor: float, windows: tuple[str, str], for_: str, page: bool) -> Alert:
    long, short = windows
    spent = f"{factor:g} times the pace that uses up the error budget in 30 days"
    return Alert(
        name,
        "slo",
        "page" if page else "ticket",
        _burns(factor, long, short),
        for_,
        "{{ $labels.application }}/{{ $labels.deployment }}: late first tokens use the error "
        f'budget at {{{{ printf "%.1f" $value }}}} times the allowed pace over <{long}>',
        f"Over {long} and over {short} more first tokens were late than {spent}.",
    )


ALERTS = (
    _burn_alert("SloBurnFast", 14.4, ("1h", "5m"), "2m", page=True),
    _burn_alert("SloBurnHigh", 6, ("6h", "30m"), "5m", page=True),
    _burn_alert("SloBurnRaised", 3, ("1d", "2h"), "15m", page=False),
    _burn_alert("SloBurnSlow", 1, ("3d", "6h"), "1h", page=False),
    Alert(
        "SloBudgetExhausted",
        "slo",
        "ticket",
        f"{BUDGET_LEFT} <= 0",
        "15m",
        "{{ $labels.application }}/{{ $labels.deployment }}: the error budget of <30d> is used up; "
        "{{ $value | humanizePercentage }} of it is left",
        "More first tokens were late in the period than the SLO allows for all of it.",
    ),
)
