"""Alertmanager: who hears of what, in which groups, and what is not said twice."""

from collections.abc import Callable, Sequence
from typing import Any

from alerts.model import OF_DEPLOYMENT, Alert

GROUP_BY = ["alertname", *OF_DEPLOYMENT]
PAGER = "http://pager.example.com/webhook"
TICKETS = "http://tickets.example.com/webhook"
LEADTIME = "http://127.0.0.1:8199/webhooks/alertmanager"
TOKEN_FILE = "/etc/alertmanager/leadtime-token"


def configuration(
    alerts: Sequence[Alert],
    scaled: Callable[[str], str],
    pager: str = PAGER,
    tickets: str = TICKETS,
    leadtime: str = LEADTIME,
    token_file: str = TOKEN_FILE,
) -> dict[str, Any]:
    """The configuration with these webhooks; `scaled` maps a duration at scale 1."""
    wait = {"group_wait": scaled("30s"), "group_interval": scaled("5m")}
    return {
        "route": {
            "receiver": "tickets",
            "group_by": GROUP_BY,
            **wait,
            "repeat_interval": scaled("12h"),
            "routes": [
                # Leadtime reacts to what its own settings name; it does not keep it to itself.
                {
                    "receiver": "leadtime",
                    "matchers": ['layer =~ "slo|serving"'],
                    "group_wait": scaled("5s"),
                    "group_interval": scaled("30s"),
                    "repeat_interval": scaled("5m"),
                    "continue": True,
                },
                {
                    "receiver": "pager",
                    "matchers": ['severity = "page"'],
                    "repeat_interval": scaled("1h"),
                },
                # Said once more: what a child route took is no longer the root's.
                {"receiver": "tickets"},
            ],
        },
        "inhibit_rules": [*_graver_first(), *_causes(alerts)],
        "receivers": [
            {"name": "pager", "webhook_configs": [_webhook(pager)]},
            {"name": "tickets", "webhook_configs": [_webhook(tickets)]},
            {"name": "leadtime", "webhook_configs": [_webhook(leadtime, token_file)]},
        ],
    }


def _webhook(url: str, token_file: str | None = None) -> dict[str, Any]:
    hook: dict[str, Any] = {"url": url, "send_resolved": True}
    if token_file is not None:
        authorization = {"type": "Bearer", "credentials_file": token_file}
        hook["http_config"] = {"authorization": authorization}
    return hook


def _graver_first() -> list[dict[str, Any]]:
    """Of one SLO, what pages silences what would only be a ticket."""
    return [
        {
            "source_matchers": ['layer = "slo"', 'severity = "page"'],
            "target_matchers": ['layer = "slo"', 'severity = "ticket"'],
            "equal": list(OF_DEPLOYMENT),
        }
    ]


def _causes(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    """Each cause silences what follows from it, of the same deployment where both have one."""
    named = {alert.name: alert for alert in alerts}
    found = []
    for cause in named.values():
        for equal in (list(OF_DEPLOYMENT), ["application"], ["instance"], []):
            followers = [
                alert.name
                for alert in alerts
                if cause.name in alert.follows_from and _shared(cause, alert) == equal
            ]
            if followers:
                target = f'alertname =~ "{"|".join(followers)}"'
                rule: dict[str, Any] = {
                    "source_matchers": [f'alertname = "{cause.name}"'],
                    "target_matchers": [target],
                }
                found.append({**rule, "equal": equal} if equal else rule)
    return found


def _shared(cause: Alert, follower: Alert) -> list[str]:
    """Labels in which both must agree; an ingress stands before a model of another name."""
    return [label for label in cause.by if label in follower.by]
