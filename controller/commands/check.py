"""`leadtime check`: whether everything is there to scale, and what stands in the way."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from controller.adapters.prometheus.client import PrometheusClient, PrometheusError
from controller.adapters.prometheus.lateness import measurable
from controller.adapters.prometheus.source import PrometheusSource
from controller.adapters.serve.api import ServeApi, ServeError
from controller.adapters.serve.view import Actuation, Deployment
from controller.core.types import DeploymentId, Readings, Replicas
from controller.loop import wall_clock_s
from controller.settings import Settings, load
from controller.wiring import (
    metrics_source,
    prometheus_options,
    serve_api,
    serve_source,
    slo_of,
)

Severity = Literal["error", "warning", "info"]
STYLE = {"error": "bold red", "warning": "yellow", "info": "green"}


@dataclass(frozen=True)
class Finding:
    """One thing found: how bad, where, what, and what to do about it."""

    severity: Severity
    where: str
    what: str
    fix: str = ""


def check_all(config: Path | None, as_json: bool) -> int:
    """Print every finding; 1 if one of them is an error, else 0."""
    settings = load(config)
    findings = asyncio.run(examine(settings))
    failed = any(finding.severity == "error" for finding in findings)
    if as_json:
        print(json.dumps({"ok": not failed, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        _show(findings)
    return int(failed)


async def examine(settings: Settings) -> list[Finding]:
    """Ask Serve and Prometheus what `run` would ask, and judge the answers."""
    api = serve_api(settings.serve)
    client = PrometheusClient(prometheus_options(settings.prometheus))
    try:
        findings, replicas = await _serve(settings, api)
        metrics = metrics_source(settings, client)
        return findings + await asyncio.to_thread(_prometheus, settings, metrics, replicas)
    finally:
        await api.close()
        client.close()


async def _serve(
    settings: Settings, api: ServeApi
) -> tuple[list[Finding], Mapping[DeploymentId, Replicas | None]]:
    where = f"serve.url {settings.serve.url}"
    source = serve_source(settings, api)
    try:
        version, view = await api.version(), await api.view()
        replicas = await source.read()
    except ServeError as error:
        return [Finding("error", where, str(error), "is Ray's dashboard there?")], {}
    findings = [Finding("info", where, f"Ray {version} answers")]
    if not replicas:
        fix = "deploy one with autoscaling_config or external_scaler_enabled"
        findings.append(Finding("error", where, "no deployment that could be scaled", fix))
    for target in replicas:
        deployment = view.deployments.get(target)
        if deployment is None:
            fix = "check application and deployment under deployments:"
            findings.append(Finding("error", str(target), "is not deployed", fix))
        else:
            findings += _ways(settings, deployment, source.actuation(target))
    return findings, replicas


def _ways(settings: Settings, deployment: Deployment, actuation: Actuation) -> list[Finding]:
    where = str(deployment.target)
    refusal = deployment.refusal(actuation)
    if refusal is not None:
        severity: Severity = "error" if settings.mode == "active" else "warning"
        return [Finding(severity, where, f"actuation {actuation} is not possible", refusal)]
    findings = [Finding("info", where, f"can be scaled by {actuation}")]
    if actuation is Actuation.EXTERNAL:
        what = "external keeps the last target if this daemon dies; floor falls back to Serve's own"
        findings.append(Finding("warning", where, what, "prefer floor where Serve autoscales"))
    most = (deployment.autoscaling or {}).get("max_replicas")
    wanted = slo_of(settings, deployment.target).max_replicas
    if most is not None and wanted > most:
        what = f"max_replicas {wanted} is above Serve's own {most}"
        findings.append(Finding("warning", where, what, "raise Serve's or lower ours"))
    return findings


def _prometheus(
    settings: Settings,
    metrics: PrometheusSource,
    replicas: Mapping[DeploymentId, Replicas | None],
) -> list[Finding]:
    where = f"prometheus.url {settings.prometheus.url}"
    try:
        problems = metrics.ambiguities()
        bounds = metrics.bounds(replicas)
    except PrometheusError as error:
        return [Finding("error", where, str(error), "is Prometheus there, and may we ask it?")]
    findings = [Finding("error", where, problem, "prometheus.selector") for problem in problems]
    if not problems:
        findings.append(Finding("info", where, "answers, and one cluster matches"))
    ttft_s = {target: slo_of(settings, target).ttft_s for target in replicas}
    view = metrics.read(wall_clock_s(), replicas, ttft_s)
    findings += [Finding("error", where, error) for error in view.errors]
    for target, readings in view.readings.items():
        findings += _signals(target, readings)
        findings += _measurable(target, ttft_s[target], bounds.get(target))
    return findings


def _signals(target: DeploymentId, readings: Readings) -> list[Finding]:
    missing = [name for name in ("arrivals", "ongoing") if not getattr(readings, name)]
    if not missing:
        return [Finding("info", str(target), "arrivals and ongoing requests are there")]
    fix = "does Prometheus scrape every Ray node, and did a request ever come?"
    return [Finding("warning", str(target), f"no series for {', '.join(missing)}", fix)]


def _measurable(
    target: DeploymentId, ttft_s: float, histogram: tuple[str, list[float]] | None
) -> list[Finding]:
    """Whether the buckets have a bound at the SLO; what is between two is counted as late."""
    if histogram is None:
        what = "no histogram of first-token times yet: attainment is not measured"
        fix = "export one as prometheus.client_ttft, or vLLM's through Ray"
        return [Finding("warning", str(target), what, fix)]
    metric, edges = histogram
    below, above = measurable(edges, ttft_s)
    if ttft_s in (below, above):
        return []
    near = " or ".join(f"{edge:g} s" for edge in (below, above) if edge is not None)
    what = f"{metric} cannot tell {ttft_s:g} s; the nearest it can are {near}"
    fix = "take one of those as ttft_s, or add the bound to the histogram"
    return [Finding("warning", str(target), what, fix)]


def _show(findings: list[Finding]) -> None:
    table = Table("", "where", "what", "fix", show_lines=False)
    for finding in findings:
        style = STYLE[finding.severity]
        table.add_row(
            f"[{style}]{finding.severity}[/]",
            *map(_plain, (finding.where, finding.what, finding.fix)),
        )
    Console().print(table)


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
