"""Leadtime itself."""

from tests.alerts.cases.case import BOTH, LEAD, LLM, OURS, Case


def reason(word: str, values: str) -> dict[str, str]:
    return {f'leadtime_reason{{{LLM},{OURS},reason="{word}"}}': values}


INSTANCE = {"instance": "leadtime:8199"}
CASES = (
    Case(
        "LeadtimeAbsent",
        "no series at all",
        {"up": "1x20"},
        "10m",
        ({}, "No Leadtime has been scraped for 5m (absent: 1)"),
    ),
    Case("LeadtimeAbsent", "there is one", {f"leadtime_active{{{OURS}}}": "0x20"}, "10m"),
    Case(
        "LeadtimeNoLeader",
        "two followers",
        {"leadtime_leader{instance='a'}": "0x20", "leadtime_leader{instance='b'}": "0x20"},
        "10m",
        ({}, "2 Leadtime daemons run and none of them leads"),
    ),
    Case(
        "LeadtimeNoLeader",
        "one of two leads",
        {"leadtime_leader{instance='a'}": "0x20", "leadtime_leader{instance='b'}": "1x20"},
        "10m",
    ),
    Case(
        "LeadtimeBlind",
        "blind for good",
        {**reason("blind", "0x10 1x20"), **reason("steady", "1x10 0x20")},
        "20m",
        (BOTH, "chat/LLM: blind for 100% of 5m: arrivals are missing or no numbers"),
    ),
    Case(
        "LeadtimeBlind", "blind every other minute", reason("blind", "1 0 1 0 1 0 1 0 1 0 1"), "10m"
    ),
    Case(
        "LeadtimeStale",
        "stale for good",
        reason("stale", "0x10 1x20"),
        "20m",
        (BOTH, "chat/LLM: arrivals were too old to decide on for 100% of 5m"),
    ),
    Case("LeadtimeStale", "one stale minute", reason("stale", "0x10 1 0x20"), "11m"),
    Case(
        "LeadtimePartial",
        "a source is silent for hours",
        reason("partial", "1x120"),
        "100m",
        (BOTH, "chat/LLM: some sources were silent for 100% of 1h; nothing is given back"),
    ),
    Case(
        "LeadtimePartial",
        "a source was silent for half an hour",
        reason("partial", "0x60 1x30 0x30"),
        "100m",
    ),
    Case(
        "LeadtimeForecastDistrusted",
        "distrusted for hours",
        {f'leadtime_forecast_trusted{{{LLM},{OURS},horizon="ahead"}}': "0x120"},
        "100m",
        (BOTH, "chat/LLM: the forecast was trusted for only 0% of 1h"),
    ),
    Case(
        "LeadtimeForecastDistrusted",
        "a surge of a quarter of an hour",
        {f'leadtime_forecast_trusted{{{LLM},{OURS},horizon="ahead"}}': "1x60 0x15 1x60"},
        "100m",
    ),
    Case(
        "LeadtimeServeUnreachable",
        "no answer",
        reason("serve_unreachable", "0x10 1x20"),
        "20m",
        (BOTH, "chat/LLM: Serve's API gave no usable answer for 100% of 5m"),
    ),
    Case(
        "LeadtimeServeUnreachable",
        "a minute without",
        reason("serve_unreachable", "0x10 1 0x20"),
        "12m",
    ),
    Case(
        "LeadtimeConflict",
        "another writer",
        reason("conflict", "0x10 1x20"),
        "12m",
        (BOTH, "chat/LLM: another writer sets the replicas (1 daemon stepped back)"),
    ),
    Case("LeadtimeConflict", "nobody else", reason("conflict", "0x30"), "12m"),
    Case(
        "LeadtimeUnschedulable",
        "no room",
        reason("unschedulable", "0x10 1x30"),
        "30m",
        (BOTH, "chat/LLM: the cluster had no room for the replicas wanted for 100% of 10m"),
    ),
    Case(
        "LeadtimeUnschedulable",
        "no room for three minutes",
        reason("unschedulable", "0x10 1x3 0x20"),
        "14m",
    ),
    Case(
        "LeadtimePendingTooLong",
        "no node for ten minutes",
        {f"leadtime_oldest_pending_seconds{{{LLM},{OURS}}}": "0+60x20", LEAD: "120x20"},
        "10m",
        (BOTH, "chat/LLM: a replica has waited 10m 0s for a node"),
    ),
    Case(
        "LeadtimePendingTooLong",
        "a node comes within four minutes",
        {f"leadtime_oldest_pending_seconds{{{LLM},{OURS}}}": "0+60x4 _x20", LEAD: "120x20"},
        "6m",
    ),
    Case(
        "LeadtimeBoundsReached",
        "held down for hours",
        {f"leadtime_limited{{{LLM},{OURS}}}": "1x120"},
        "100m",
        (
            BOTH,
            "chat/LLM: more replicas were worth having than there may be, for 100% of 1h",
        ),
    ),
    Case(
        "LeadtimeBoundsReached",
        "a busy half hour",
        {f"leadtime_limited{{{LLM},{OURS}}}": "0x60 1x30 0x30"},
        "100m",
    ),
    Case(
        "LeadtimeTargetNotHonoured",
        "refused for minutes",
        {f"leadtime_unhonoured_seconds{{{LLM},{OURS}}}": "0x5 0+60x15"},
        "10m",
        (BOTH, "chat/LLM: Serve has not had the number asked for since 4m 0s"),
    ),
    Case(
        "LeadtimeTargetNotHonoured",
        "taken at the next tick",
        {f"leadtime_unhonoured_seconds{{{LLM},{OURS}}}": "0 10 0 10 0 10 0 10 0 10 0 10"},
        "10m",
    ),
    Case(
        "LeadtimeTickFailing",
        "each tick fails",
        {f"leadtime_tick_errors_total{{{OURS}}}": "0x10 0+6x20"},
        "20m",
        (INSTANCE, "leadtime:8199: 54 ticks failed in 10m"),
    ),
    Case(
        "LeadtimeTickFailing",
        "one failed",
        {f"leadtime_tick_errors_total{{{OURS}}}": "0x10 1x20"},
        "20m",
    ),
    Case(
        "LeadtimeLoopStuck",
        "no tick for ten minutes",
        {f"leadtime_ticked_timestamp_seconds{{{OURS}}}": "0+60x10 600x20"},
        "20m",
        (INSTANCE, "leadtime:8199: the last tick was 10m 0s ago"),
    ),
    Case(
        "LeadtimeLoopStuck",
        "it ticks",
        {f"leadtime_ticked_timestamp_seconds{{{OURS}}}": "0+60x30"},
        "20m",
    ),
    Case(
        "LeadtimeClockSkew",
        "eight seconds behind",
        {f"leadtime_clock_skew_seconds{{{OURS}}}": "-8x30"},
        "20m",
        (INSTANCE, "leadtime:8199: its clock is 8s off Prometheus's"),
    ),
    Case(
        "LeadtimeClockSkew", "a tenth", {f"leadtime_clock_skew_seconds{{{OURS}}}": "0.1x30"}, "20m"
    ),
    Case(
        "LeadtimeJournalFailing",
        "the disk is full",
        {f"leadtime_journal_errors_total{{{OURS}}}": "0x10 0+6x20"},
        "20m",
        (INSTANCE, "leadtime:8199: 54 ticks could not be journalled in 10m"),
    ),
    Case(
        "LeadtimeJournalFailing",
        "it failed yesterday",
        {f"leadtime_journal_errors_total{{{OURS}}}": "7x30"},
        "20m",
    ),
    Case(
        "LeadtimeFitsFailing",
        "each fit fails",
        {f'leadtime_fits_total{{{LLM},{OURS},result="failed"}}': "0 0 1 1 2 2 3 3 4 4 5 5x20"},
        "20m",
        (BOTH, "chat/LLM: 5 forecast fits failed in 6h"),
    ),
    Case(
        "LeadtimeFitsFailing",
        "one failed",
        {f'leadtime_fits_total{{{LLM},{OURS},result="failed"}}': "0x5 1x30"},
        "20m",
    ),
)
