"""Leadtime itself: does it see, does it decide, does it remember?"""

from controller.adapters.telemetry import names
from dashboards.model import Dashboard, Panel, Proof, Query, Row
from dashboards.queries import OF_DEPLOYMENT, RATE, count, deployment_variables

BY_INSTANCE = "{{instance}}"
HOLDS = "blind|stale|non_finite|partial|serve_unreachable|conflict|frozen"
USED = {0: ("not used", "orange"), 1: ("used", "green")}

LOOP = Row(
    "Loop",
    (
        Panel(
            "Tick time",
            "How long a tick takes: reading, deciding, writing.",
            "s",
            tuple(
                Query(
                    f"histogram_quantile({share}, sum by (instance, le) "
                    f"(rate({names.TICK}_bucket[{RATE}])))",
                    f"p{100 * share:g} {BY_INSTANCE}",
                )
                for share in (0.5, 0.99)
            ),
            alert="LeadtimeLoopStuck",
        ),
        Panel(
            "Since the last tick",
            "Age of the last tick that was completed.",
            "s",
            (Query(f"time() - max by (instance) ({names.TICKED})", BY_INSTANCE),),
            alert="LeadtimeLoopStuck",
            steps={120: "red"},
        ),
        Panel(
            "Ticks that failed",
            "Ticks that ended in an error nobody foresaw; the log has the traceback.",
            "short",
            (Query(f"sum by (instance) (increase({names.TICK_ERRORS}[{RATE}]))", BY_INSTANCE),),
            kind="bars",
            alert="LeadtimeTickFailing",
        ),
        Panel(
            "Mode",
            "Whether decisions are carried out.",
            "short",
            (Query(f"max by (instance) ({names.ACTIVE})", BY_INSTANCE),),
            kind="states",
            alert="LeadtimeAbsent",
            mappings={0: ("shadow", "blue"), 1: ("active", "green")},
        ),
        Panel(
            "Leader",
            "Which daemon decides.",
            "short",
            (Query(f"max by (instance) ({names.LEADER})", BY_INSTANCE),),
            kind="states",
            alert="LeadtimeNoLeader",
            mappings={0: ("follows", "blue"), 1: ("leads", "green")},
        ),
        Panel(
            "Clock skew",
            "The daemon's clock less Prometheus's.",
            "s",
            (Query(f"max by (instance) ({names.CLOCK_SKEW})", BY_INSTANCE),),
            alert="LeadtimeClockSkew",
            steps={5: "red"},
            least=None,
        ),
    ),
)
SIGNALS = Row(
    "Signals",
    (
        Panel(
            "Age of signals",
            "How old each input was when it was decided on.",
            "s",
            (
                Query(
                    f"max by (application, deployment, signal) "
                    f"({names.SIGNAL_AGE}{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{signal}}",
                ),
            ),
            alert="LeadtimeStale",
        ),
        Panel(
            "Signals in use",
            "Which inputs could be used. What a deployment does not have by design is not used.",
            "short",
            (
                Query(
                    f"min by (application, deployment, signal) "
                    f"({names.TRUSTED}{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{signal}}",
                ),
            ),
            kind="states",
            alert="LeadtimePartial",
            mappings=USED,
        ),
        Panel(
            "Signals refused",
            "Inputs that were there and could not be true, or were too old.",
            "short",
            (
                Query(
                    count(names.UNTRUSTED, by="application, deployment, signal, trust"),
                    "{{deployment}} {{signal}} {{trust}}",
                ),
            ),
            kind="bars",
            alert="LeadtimeStale",
            proof=Proof.PAGE,
        ),
        Panel(
            "Silent replicas",
            "Replicas that serve, by Serve's account, and do not report what runs on them.",
            "short",
            (
                Query(
                    f"max by (application, deployment) ({names.SILENT}{{{OF_DEPLOYMENT}}})",
                    "{{application}}/{{deployment}}",
                ),
            ),
            alert="LeadtimePartial",
        ),
        Panel(
            "Holds",
            "Ticks in which Leadtime kept or only raised the number because it could not see or "
            "must not write, by reason.",
            "short",
            (
                Query(
                    count(
                        names.DECISIONS,
                        f'{OF_DEPLOYMENT},reason=~"{HOLDS}"',
                        "application, deployment, reason",
                    ),
                    "{{deployment}} {{reason}}",
                ),
            ),
            kind="bars",
            stacked=True,
            alert="LeadtimeBlind",
        ),
        Panel(
            "Answers that could not be used",
            "Errors of Prometheus and of Serve's API, by source.",
            "short",
            (Query(f"sum by (source) (increase({names.SOURCE_ERRORS}[{RATE}]))", "{{source}}"),),
            kind="bars",
            alert="LeadtimeServeUnreachable",
        ),
    ),
)
MEMORY = Row(
    "Memory and alerts",
    (
        Panel(
            "Journal errors",
            "Ticks that could not be written down.",
            "short",
            (Query(f"sum by (instance) (increase({names.JOURNAL_ERRORS}[{RATE}]))", BY_INSTANCE),),
            kind="bars",
            alert="LeadtimeJournalFailing",
            width=12,
        ),
        Panel(
            "Alerts",
            "Alerts of these rules, pending and firing.",
            "short",
            (
                Query(
                    "count by (alertname, alertstate, severity) "
                    '(ALERTS{layer=~"slo|serving|controller|cluster"})',
                    "{{alertname}} {{alertstate}} ({{severity}})",
                ),
            ),
            kind="states",
            mappings={1: ("1", "orange")},
            width=12,
        ),
    ),
)
DASHBOARD = Dashboard(
    "leadtime-itself",
    "Leadtime / Leadtime itself",
    "Does it see, does it decide, does it remember?",
    (LOOP, SIGNALS, MEMORY),
    deployment_variables(names.WANTED),
)
