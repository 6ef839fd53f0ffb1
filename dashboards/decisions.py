"""Decisions: how many replicas, why, and what came of it."""

from controller.adapters.hook_metrics import OVERRIDES
from controller.adapters.telemetry import names
from dashboards.model import Dashboard, Panel, Query, Row
from dashboards.queries import (
    ARRIVALS,
    EACH,
    OF_DEPLOYMENT,
    ON,
    STARTUP_MS,
    count,
    deployment_variables,
    gauge,
    quantile,
    rate,
)

FIRST = f"leadtime:first_tokens:rate{{{OF_DEPLOYMENT}}}"
LATE = f"leadtime:late_first_tokens:rate{{{OF_DEPLOYMENT}}}"


def most(name: str) -> str:
    """A gauge of ours by deployment: every daemon that watches says the same."""
    return gauge(name, "max")


REPLICAS = Row(
    "Replicas",
    (
        Panel(
            "Wanted, requested, ready",
            "Wanted is what Leadtime decided, requested Serve's target, ready what takes requests.",
            "short",
            (
                Query(most(names.WANTED), f"wanted {EACH}"),
                Query(most(names.REQUESTED), f"requested {EACH}"),
                Query(most(names.READY), f"ready {EACH}"),
                Query(most(names.LEAST), f"minimum {EACH}"),
                Query(most(names.MOST), f"maximum {EACH}"),
            ),
            alert="LeadtimeTargetNotHonoured",
            width=16,
        ),
        Panel(
            "Now",
            "Replicas that take requests, of those wanted.",
            "short",
            (
                Query(most(names.READY), f"ready {EACH}"),
                Query(most(names.WANTED), f"wanted {EACH}"),
            ),
            kind="stat",
            alert="LeadtimeTargetNotHonoured",
        ),
        Panel(
            "Reason in force",
            "Why the number is what it is, in the words of log, journal and runbook.",
            "short",
            (
                Query(
                    f"max by (application, deployment, reason) "
                    f"({names.REASON}{{{OF_DEPLOYMENT}}}) == 1",
                    "{{deployment}} {{reason}}",
                ),
            ),
            kind="states",
            alert="LeadtimeBlind",
            mappings={1: ("in force", "blue")},
            width=12,
        ),
        Panel(
            "Words of operators in force",
            "Pins, pauses, holds and boosts that hold now, by effect: none is 0.",
            "short",
            (
                Query(
                    f"max by (application, deployment, effect) ({OVERRIDES}{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{effect}}",
                ),
            ),
            kind="states",
            mappings={0: ("none", "transparent"), 1: ("in force", "purple")},
            width=12,
        ),
        Panel(
            "Guards",
            "Replicas that each guard added to or took from what sizing asked for.",
            "short",
            (
                Query(
                    f"max by (application, deployment, guard) ({names.GUARD}{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{guard}}",
                ),
            ),
            kind="bars",
            alert="LeadtimeBoundsReached",
            least=None,
        ),
        Panel(
            "Serve's own scaler beside ours",
            "What Serve's policy asks for by itself, what its target is, and what Leadtime wants.",
            "short",
            (
                Query(most(names.WANTED), f"wanted {EACH}"),
                Query(
                    gauge("ray_serve_autoscaling_desired_replicas", "max"), f"Serve's wish {EACH}"
                ),
                Query(gauge("ray_serve_autoscaling_target_replicas", "max"), f"requested {EACH}"),
            ),
            alert="LeadtimeConflict",
        ),
        Panel(
            "What Leadtime would change",
            "Wanted less requested. In shadow mode this is what would be done; in active mode it "
            "is soon zero again.",
            "short",
            (Query(f"{most(names.WANTED)} - {ON} {most(names.REQUESTED)}", EACH),),
            kind="bars",
            alert="LeadtimeTargetNotHonoured",
            least=None,
        ),
        Panel(
            "Scale actions",
            "Writes to Serve by what became of them.",
            "short",
            (
                Query(
                    count(names.ACTIONS, by="application, deployment, outcome"),
                    "{{deployment}} {{outcome}}",
                ),
            ),
            kind="bars",
            alert="LeadtimeTargetNotHonoured",
        ),
        Panel(
            "Decisions by reason",
            "How often each reason was given.",
            "short",
            (
                Query(
                    count(names.DECISIONS, by="application, deployment, reason"),
                    "{{deployment}} {{reason}}",
                ),
            ),
            kind="bars",
            stacked=True,
            alert="LeadtimeBlind",
        ),
        Panel(
            "On their way",
            "Replicas that start on a node, and replicas for which no node has room yet.",
            "short",
            (
                Query(most(names.STARTING), f"starting {EACH}"),
                Query(most(names.PENDING), f"pending {EACH}"),
            ),
            alert="LeadtimePendingTooLong",
        ),
        Panel(
            "Not honoured for",
            "Time since Serve last had the number that Leadtime asked for.",
            "s",
            (Query(most(names.UNHONOURED), EACH),),
            alert="LeadtimeTargetNotHonoured",
            steps={60: "red"},
        ),
        Panel(
            "Errors while giving back",
            "HTTP requests to the application that failed while replicas of it drained: above "
            "zero, graceful_shutdown_timeout_s is shorter than an answer.",
            "short",
            (Query(count(names.SHRINK_ERRORS), EACH),),
            kind="bars",
            alert="ServeErrorRatioHigh",
        ),
    ),
)
LEARNED = Row(
    "Learned",
    (
        Panel(
            "Lead time",
            "Learned time from asking for a replica to having it, beside recent starts and the "
            "oldest one under way.",
            "s",
            (
                Query(most(names.LEAD), f"learned {EACH}"),
                Query(quantile(0.5, STARTUP_MS) + " / 1000", f"median start {EACH}"),
                Query(most(names.OLDEST_START), f"oldest start {EACH}"),
            ),
            alert="ServeColdStartSlow",
        ),
        Panel(
            "Capacity of a replica",
            "Learned requests per second of a full replica, beside what each ready one gets.",
            "reqps",
            (
                Query(most(names.CAPACITY), f"capacity {EACH}"),
                Query(f"{rate(ARRIVALS)} / {ON} {most(names.READY)}", f"load a replica {EACH}"),
            ),
            alert="LeadtimeBoundsReached",
        ),
        Panel(
            "Price of a late request",
            "GPU-seconds that one late request may cost; a slow loop raises it while too many are "
            "late.",
            "s",
            (Query(most(names.PRICE), EACH),),
            alert="SloBurnRaised",
        ),
    ),
)
SLO = Row(
    "SLO",
    (
        Panel(
            "First tokens in time",
            "Share of first tokens within the SLO, and the share promised.",
            "percentunit",
            (
                Query(f"1 - {LATE} / {FIRST}", f"in time {EACH}"),
                Query(most(names.SLO_ATTAINMENT), f"promised {EACH}"),
            ),
            alert="SloBurnFast",
            least=None,
            most=1,
        ),
        Panel(
            "Late by Leadtime's account",
            "Share of recent first tokens later than the SLO, an upper bound.",
            "percentunit",
            (Query(most(names.LATE), EACH),),
            alert="SloBurnFast",
        ),
        Panel(
            "Error budget left",
            "Share of the late requests allowed in 30 days that is left.",
            "percentunit",
            (Query(f"leadtime:slo_budget_left:ratio{{{OF_DEPLOYMENT}}}", EACH),),
            kind="stat",
            alert="SloBudgetExhausted",
            steps={float("-inf"): "red", 0: "orange", 0.25: "green"},
            least=None,
            most=1,
        ),
        Panel(
            "Burn rate",
            "Pace at which late requests use the budget, over windows of 5 minutes to 3 days; at 1 "
            "it lasts 30 days.",
            "short",
            (
                Query(
                    f"max by (application, deployment, window) "
                    f"(leadtime:slo_burn_rate{{{OF_DEPLOYMENT}}})",
                    "{{deployment}} {{window}}",
                ),
            ),
            alert="SloBurnFast",
            steps={1: "orange", 14.4: "red"},
            width=24,
        ),
    ),
)
DASHBOARD = Dashboard(
    "leadtime-decisions",
    "Leadtime / Decisions",
    "How many replicas, why, what was learned, and whether users got what was promised.",
    (REPLICAS, LEARNED, SLO),
    deployment_variables(names.WANTED),
)
