"""Leadtime itself. The reasons are those of its decisions, in the same words."""

from alerts.model import Alert

BY = "by (application, deployment)"
ON = "on (application, deployment)"
GCS = ("RayGcsDown", "RayMetricsAbsent")
TARGET = "{{ $labels.application }}/{{ $labels.deployment }}"
SHARE = "{{ $value | humanizePercentage }}"
MOSTLY = 0.8


def _mostly(reasons: str, window: str) -> str:
    """A reason that is in force most of the time; a tick of it now and then is none."""
    matched = f'leadtime_reason{{reason=~"{reasons}"}}'
    return f"sum {BY} (avg_over_time({matched}[{window}])) > {MOSTLY}"


ALERTS = (
    Alert(
        "LeadtimeAbsent",
        "controller",
        "page",
        "absent_over_time(leadtime_active[5m])",
        "1m",
        "No Leadtime has been scraped for <5m> (absent: {{ $value }})",
        "Nobody scales ahead. Under `floor` Serve's own autoscaler goes on from the last floor; "
        "under `external` the last target stays.",
        by=(),
    ),
    Alert(
        "LeadtimeNoLeader",
        "controller",
        "page",
        "count(leadtime_leader) and max(leadtime_leader) == 0",
        "2m",
        "{{ $value }} Leadtime daemons run and none of them leads",
        "No daemon holds the lease, so none writes.",
        by=(),
    ),
    Alert(
        "LeadtimeBlind",
        "controller",
        "page",
        _mostly("blind|non_finite", "5m"),
        "1m",
        f"{TARGET}: blind for {SHARE} of <5m>: arrivals are missing or no numbers",
        "The number of replicas is held, whatever the load does.",
        follows_from=GCS,
    ),
    Alert(
        "LeadtimeStale",
        "controller",
        "page",
        _mostly("stale", "5m"),
        "1m",
        f"{TARGET}: arrivals were too old to decide on for {SHARE} of <5m>",
        "The number of replicas is held, whatever the load does.",
        follows_from=GCS,
    ),
    Alert(
        "LeadtimePartial",
        "controller",
        "ticket",
        _mostly("partial", "1h"),
        "10m",
        f"{TARGET}: some sources were silent for {SHARE} of <1h>; nothing is given back",
        "With a source missing, replicas are only added: this costs GPU time.",
        follows_from=(*GCS, "LeadtimeBlind", "LeadtimeStale"),
    ),
    Alert(
        "LeadtimeForecastDistrusted",
        "controller",
        "ticket",
        f'min {BY} (avg_over_time(leadtime_forecast_trusted{{horizon="ahead"}}[1h])) < 0.2',
        "15m",
        f"{TARGET}: the forecast was trusted for only {SHARE} of <1h>",
        "The load behaves as it never did: last-value quantiles are used where they are higher.",
    ),
    Alert(
        "LeadtimeServeUnreachable",
        "controller",
        "page",
        _mostly("serve_unreachable", "5m"),
        "1m",
        f"{TARGET}: Serve's API gave no usable answer for {SHARE} of <5m>",
        "Replicas are neither seen nor set.",
        follows_from=("RayGcsDown", "RayDashboardDown"),
    ),
    Alert(
        "LeadtimeConflict",
        "controller",
        "page",
        f'sum {BY} (leadtime_reason{{reason="conflict"}}) > 0',
        "1m",
        f"{TARGET}: another writer sets the replicas ({{{{ $value }}}} daemon stepped back)",
        "Leadtime has stopped writing for 5 minutes or more, so as not to fight.",
    ),
    Alert(
        "LeadtimeUnschedulable",
        "controller",
        "page",
        _mostly("unschedulable", "10m"),
        "2m",
        f"{TARGET}: the cluster had no room for the replicas wanted for {SHARE} of <10m>",
        "More replicas are needed than the free resources hold.",
        follows_from=GCS,
    ),
    Alert(
        "LeadtimePendingTooLong",
        "controller",
        "page",
        f"max {BY} (leadtime_oldest_pending_seconds) "
        f"> {ON} clamp_min(2 * max {BY} (leadtime_lead_seconds), 300)",
        "1m",
        f"{TARGET}: a replica has waited {{{{ $value | humanizeDuration }}}} for a node",
        "The cluster does not grow, or no node fits the replica.",
        follows_from=(*GCS, "LeadtimeUnschedulable"),
    ),
    Alert(
        "LeadtimeBoundsReached",
        "controller",
        "ticket",
        f"max {BY} (avg_over_time(leadtime_limited[1h])) > {MOSTLY}",
        "15m",
        f"{TARGET}: more replicas were worth having than there may be, for {SHARE} of <1h>",
        "max_replicas or the free resources hold the number down.",
        follows_from=("LeadtimeUnschedulable",),
    ),
    Alert(
        "LeadtimeTargetNotHonoured",
        "controller",
        "page",
        f"max {BY} (leadtime_unhonoured_seconds) > 60",
        "1m",
        f"{TARGET}: Serve has not had the number asked for since "
        "{{ $value | humanizeDuration }}",
        "Writes are refused or come to nothing.",
        follows_from=("LeadtimeConflict", "LeadtimeServeUnreachable"),
    ),
    Alert(
        "LeadtimeTickFailing",
        "controller",
        "page",
        "sum by (instance) (increase(leadtime_tick_errors_total[10m])) > 2",
        "1m",
        '{{ $labels.instance }}: {{ printf "%.0f" $value }} ticks failed in <10m>',
        "Something unforeseen ends ticks before they decide; the log has the traceback.",
        by=("instance",),
    ),
    Alert(
        "LeadtimeLoopStuck",
        "controller",
        "page",
        "time() - max by (instance) (leadtime_ticked_timestamp_seconds) > 120",
        "1m",
        "{{ $labels.instance }}: the last tick was {{ $value | humanizeDuration }} ago",
        "The daemon answers and decides nothing.",
        by=("instance",),
        follows_from=("LeadtimeTickFailing",),
    ),
    Alert(
        "LeadtimeClockSkew",
        "controller",
        "ticket",
        "max by (instance) (abs(leadtime_clock_skew_seconds)) > 5",
        "5m",
        "{{ $labels.instance }}: its clock is {{ $value | humanizeDuration }} off Prometheus's",
        "Ages of samples are wrong by as much: fresh ones look stale, or stale ones fresh.",
        by=("instance",),
    ),
    Alert(
        "LeadtimeJournalFailing",
        "controller",
        "ticket",
        "sum by (instance) (increase(leadtime_journal_errors_total[10m])) > 0",
        "1m",
        '{{ $labels.instance }}: {{ printf "%.0f" $value }} ticks could not be journalled in <10m>',
        "Scaling goes on; decisions and what was learned would be lost by a restart.",
        by=("instance",),
    ),
    Alert(
        "LeadtimeFitsFailing",
        "controller",
        "ticket",
        f'sum {BY} (increase(leadtime_fits_total{{result="failed"}}[6h])) > 3',
        "5m",
        f'{TARGET}: {{{{ printf "%.0f" $value }}}} forecast fits failed in <6h>',
        "The forecast goes on with an ever older model.",
    ),
)
