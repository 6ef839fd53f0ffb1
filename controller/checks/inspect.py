"""Asks Serve and Prometheus what the production rules go by."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from controller.adapters.prometheus import audit as metrics_audit
from controller.adapters.prometheus.client import (
    PrometheusClient,
    PrometheusError,
    PrometheusSilent,
)
from controller.adapters.serve import audit as serve_audit
from controller.adapters.serve.api import ServeApi, ServeError
from controller.adapters.serve.gangs import Bundles
from controller.adapters.serve.view import Actuation, Deployment
from controller.checks.findings import Failure, Inspection, Subject
from controller.connections import (
    backfill,
    metrics_source,
    prometheus_options,
    serve_api,
    trusted,
)
from controller.core.leadtime import LeadTime
from controller.core.types import DeploymentId, Replicas
from controller.loop import wall_clock_s
from controller.promises import slo_of
from controller.settings import Settings

DAY_S = 86_400.0
STAY_SHARE = 0.99
START_QUANTILE = 0.5
Answer = TypeVar("Answer")


async def inspect(settings: Settings) -> Inspection:
    """What the rules go by; whatever does not answer is among the failures."""
    api = serve_api(settings.serve)
    client = PrometheusClient(prometheus_options(settings.prometheus))
    seen = Inspection(
        serve_url=settings.serve.url,
        prometheus_url=settings.prometheus.url,
        tick_s=settings.tick_s,
        scrape_s=settings.prometheus.scrape_s,
        elastic=settings.serve.elastic,
    )
    try:
        seen = await _ask_serve(settings, api, seen)
        return await asyncio.to_thread(_ask_prometheus, settings, client, seen)
    finally:
        await api.close()
        client.close()


async def _ask_serve(settings: Settings, api: ServeApi, seen: Inspection) -> Inspection:
    where, fix = f"serve.url {settings.serve.url}", "is Ray's dashboard there?"
    failures: list[Failure] = []

    async def asked(question: Awaitable[Answer]) -> Answer | None:
        try:
            return await question
        except ServeError as error:
            failures.append((where, str(error), fix))
            return None

    version = await asked(api.version())
    view = await asked(api.view()) if version is not None else None
    if version is None or view is None:
        return replace(seen, failures=tuple(failures))
    nodes = await asked(serve_audit.nodes(api))
    gangs = await asked(serve_audit.gangs(api)) or {}
    heads = nodes.heads if nodes is not None else ()
    return replace(
        seen,
        subjects=tuple(_subject(settings, d, gangs) for d in view.deployments.values()),
        missing=tuple(target for target in _listed(settings) if target not in view.deployments),
        arguments={name: config.get("args") or {} for name, config in view.configs.items()},
        nodes=None if nodes is None else nodes.totals,
        version=version,
        open_urls=await _open_urls(settings, heads),
        failures=tuple(failures),
    )


async def _open_urls(settings: Settings, heads: Iterable[str]) -> tuple[str, ...]:
    """Where the dashboard lets anyone in: at our URL, and at the head's own address."""
    urls = serve_audit.dashboards(settings.serve.url, tuple(heads))
    verify = trusted(settings.serve)
    answers = await asyncio.gather(*(serve_audit.is_open(url, verify) for url in urls))
    return tuple(url for url, is_open in zip(urls, answers, strict=True) if is_open)


def _listed(settings: Settings) -> dict[DeploymentId, Actuation | None]:
    return {
        DeploymentId(entry.application, entry.deployment): (
            Actuation(entry.actuation) if entry.actuation else None
        )
        for entry in settings.deployments
    }


def _subject(
    settings: Settings, deployment: Deployment, gangs: Mapping[DeploymentId, Bundles]
) -> Subject:
    target = deployment.target
    slo = slo_of(settings, target)
    listed = _listed(settings)
    ours = not listed or target in listed
    return Subject(
        deployment=deployment,
        ttft_s=slo.ttft_s,
        min_replicas=slo.min_replicas,
        max_replicas=slo.max_replicas,
        slots=slo.slots,
        actuation=(listed.get(target) or deployment.actuation) if ours else None,
        listed=target in listed,
        lead_prior_s=slo.lead_prior_s,
        gang=gangs.get(target) or deployment.bundles,
        strategy=(deployment.submitted or {}).get("placement_group_strategy") or "PACK",
    )


def _ask_prometheus(settings: Settings, client: PrometheusClient, seen: Inspection) -> Inspection:
    where = f"prometheus.url {settings.prometheus.url}"
    labels = settings.prometheus.selector
    failures: list[Failure] = []
    silent = False

    def asked(question: Callable[[], Answer]) -> Answer | None:
        nonlocal silent
        if silent:
            return None
        try:
            return question()
        except PrometheusError as error:
            silent = isinstance(error, PrometheusSilent)
            failures.append((where, str(error), "is Prometheus there, and may we ask it?"))
            return None

    metrics = metrics_source(settings, client)
    known = {subject.deployment.target: _replicas(subject) for subject in seen.scaled}
    ttft_s = {subject.deployment.target: subject.ttft_s for subject in seen.scaled}
    problems = asked(metrics.ambiguities)
    bounds = asked(lambda: metrics.bounds(known)) or {}
    cadence = asked(lambda: metrics_audit.cadence(client, labels))
    versions = asked(lambda: metrics_audit.versions(client, labels))
    stays = asked(lambda: metrics_audit.stays(client, labels, STAY_SHARE)) or {}
    starts = asked(lambda: backfill(settings, client).starts(DAY_S)) or {}
    view = None if silent else metrics.read(wall_clock_s(), known, ttft_s)
    readings = view.readings if view is not None else {}
    errors = view.errors if view is not None else ()
    subjects = tuple(
        replace(
            subject,
            stay_p99_s=stays.get(subject.deployment.target),
            start_s=_start_s(starts.get(subject.deployment.target), subject.lead_prior_s),
            readings=readings.get(subject.deployment.target),
            late_bounds=bounds.get(subject.deployment.target),
        )
        for subject in seen.subjects
    )
    return replace(
        seen,
        subjects=subjects,
        ambiguities=None if problems is None else tuple(problems),
        cadence=cadence,
        versions=versions,
        failures=(*seen.failures, *failures, *((where, error, "") for error in errors)),
    )


def _replicas(subject: Subject) -> Replicas:
    deployment = subject.deployment
    return Replicas(deployment.requested, deployment.requested, deployment.members)


def _start_s(counts: Mapping[float, float] | None, prior_s: float) -> float | None:
    """A usual start of those that Ray's own histogram counted; None where it counted none."""
    if not counts or max(counts.values()) <= 0:
        return None
    lead = LeadTime(prior_s)
    lead.expect(list(counts), list(counts.values()))
    return lead.quantile(START_QUANTILE)
