"""`leadtime explain`: why a deployment has the replicas it has."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from controller.adapters.store import Journal
from controller.core.explain import explained
from controller.core.types import DeploymentId
from controller.loop import wall_clock_s
from controller.promises import promise_of
from controller.settings import SettingsError, load

AGO_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
TIMEOUT_S = 10.0


def explain(name: str, at: str | None, config: Path | None, url: str | None, as_json: bool) -> int:
    """Print the explanation; 0 if there is a decision to explain, else 1."""
    target = target_of(name)
    now_s = wall_clock_s()
    at_s = None if at is None else time_of(at, now_s)
    if url is None:
        found, said = _from_journal(target, at_s, config)
    else:
        found, said = _from_daemon(target, at_s, url)
    console = Console(highlight=False)
    if found is None:
        Console(stderr=True).print(said, markup=False)
        return 1
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _show(console, found)
    return 0


def target_of(name: str) -> DeploymentId:
    """APPLICATION/DEPLOYMENT; raises SettingsError."""
    application, slash, deployment = name.partition("/")
    if not (application and slash and deployment):
        raise SettingsError(f"{name}: write it APPLICATION/DEPLOYMENT, as Serve names them")
    return DeploymentId(application, deployment)


def time_of(text: str, now_s: float) -> float:
    """Seconds since the epoch of an ISO time or of a span ago, such as 10m; raises
    SettingsError."""
    span = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if span:
        return now_s - float(span[1]) * AGO_S[span[2]]
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        example = "2026-11-30T08:15:00+01:00 (without an offset it is UTC), or a span ago: 10m"
        raise SettingsError(f"--at {text}: write it like {example}") from None
    return (made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp()


def _from_journal(
    target: DeploymentId, at_s: float | None, config: Path | None
) -> tuple[dict[str, Any] | None, str]:
    settings = load(config)
    path = settings.journal.path
    if not path.is_file():
        raise SettingsError(f"journal.path: {path} is not there; is --config that of the daemon?")
    journal = Journal(path, settings.journal.retention_days * 86_400.0)
    try:
        found = journal.decisions(target, 1, at_s)
        named = {(d["application"], d["deployment"]) for d in journal.decisions(limit=200)}
    finally:
        journal.close()
    if not found:
        known = ", ".join(sorted("/".join(each) for each in named)) or "none"
        return None, f"The journal holds no decision on {target} then; lately decided on: {known}"
    asked_s = wall_clock_s() if at_s is None else at_s
    return explained(found[0], asked_s, promise_of(settings, target)), ""


def _from_daemon(
    target: DeploymentId, at_s: float | None, url: str
) -> tuple[dict[str, Any] | None, str]:
    asked: dict[str, Any] = dict(target._asdict())
    if at_s is not None:
        asked["at_s"] = at_s
    try:
        answer = httpx.get(f"{url.rstrip('/')}/api/v1/explain", params=asked, timeout=TIMEOUT_S)
        body = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"--url {url}: no usable answer: {error}") from error
    if answer.is_success:
        return body, ""
    return None, str(body.get("error", answer.status_code))


def _show(console: Console, found: dict[str, Any]) -> None:
    made = datetime.fromtimestamp(found["at_s"], UTC).isoformat(timespec="seconds")
    named = f"{found['application']}/{found['deployment']}"
    lines = [
        f"{named} at {made} ({found['age_s']:.0f} s before the time asked for)",
        f"ready {found['ready']}, requested {found['requested']}, wanted {found['wanted']}",
        f"{found['reason']}: {found['in_words']}",
    ]
    if found["detail"]:
        lines.append(f"{'done' if found['applied'] else 'not done'}: {found['detail']}")
    for line in lines:
        console.print(line, markup=False)
    _table(
        console,
        "Guards",
        ("guard", "before", "after", "promise"),
        [
            (step["guard"], step["before"], step["after"], step["promise"])
            for step in found["guards"]
        ],
    )
    _table(
        console,
        "Forecast, requests per second",
        ("horizon", "50 %", "90 %", "95 %", "99 %"),
        [
            (
                f"{made['horizon']} ({made['horizon_s']:.0f} s), {made['model']}",
                *(f"{rps:.2f}" for rps in made["rps"].values()),
            )
            for made in found["forecasts"]
        ],
    )
    _table(
        console,
        "Inputs",
        ("signal", "trust", "value", "age"),
        [
            (
                each["signal"],
                each["trust"],
                "-" if each["value"] is None else f"{each['value']:g}",
                f"{each['age_s']:.1f} s",
            )
            for each in found["inputs"]
        ],
    )
    capacity = found["capacity"]
    carries = capacity["capacity_rps"]
    console.print(
        f"A replica carries {'-' if carries is None else f'{carries:.2f}'}/s; "
        f"a start takes {capacity['lead_s']:.0f} s.",
        markup=False,
    )
    _show_choice(console, found.get("choice"))
    _list(
        console,
        "What blocks a change:",
        [
            f"{timer['guard']}: {timer['what']}"
            + ("" if timer["for_s"] is None else f", {timer['for_s']:.0f} s more")
            for timer in found["blocking"]
        ],
    )
    _list(
        console,
        "What would change it:",
        [
            f"{each['replicas']} instead of {each['need_now']} needed at {each['multiple']:.2f} "
            f"times the expected load ({each['median_rps']:.2f}/s at the median)"
            for each in found["would_change"]
        ],
    )


def _show_choice(console: Console, choice: dict[str, Any] | None) -> None:
    if choice is None:
        return
    age = "" if choice["age_s"] is None else f", chosen {choice['age_s'] / 3600:.1f} h ago"
    problem = f" ({choice['problem']})" if choice["problem"] else ""
    console.print(
        f"Model {choice['model']} at {choice['price_ratio']:g} x the price{age}: "
        f"{choice['in_words']}{problem}.",
        markup=False,
    )
    if choice["trials"]:
        _table(
            console,
            "Replay of the past",
            ("model", "x price", "GPU-hours", "late"),
            [
                (
                    trial["model"],
                    f"{trial['price_ratio']:g}",
                    f"{trial['gpu_hours']:.1f}",
                    f"{trial['late_ratio']:.2%}",
                )
                for trial in choice["trials"]
            ],
        )


def _table(
    console: Console, title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(cell).replace("[", r"\[") for cell in row))
    console.print(table)


def _list(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(title, markup=False)
        for line in lines:
            console.print(f"  {line}", markup=False)
