"""How the settings reach Serve and Prometheus: clients, sources, history."""

import ssl
from collections.abc import Callable
from math import inf

import httpx

from controller.adapters.prometheus.backfill import Backfill
from controller.adapters.prometheus.client import PrometheusClient, PrometheusOptions
from controller.adapters.prometheus.source import PrometheusSource
from controller.adapters.serve.api import ServeApi
from controller.adapters.serve.source import Published, ServeSource, nothing_published
from controller.adapters.serve.view import Actuation
from controller.core.periods import Periods
from controller.core.types import DeploymentId
from controller.settings import PrometheusSettings, ServeSettings, Settings, SettingsError


def serve_api(settings: ServeSettings, fence: Callable[[], float] = lambda: inf) -> ServeApi:
    """Serve's REST API, with Ray's token where one is set; `fence` as for `ServeApi`."""
    token = settings.token.get_secret_value() if settings.token else None
    if settings.token_file is not None:
        token = settings.token_file.read_text().strip()
    client = httpx.AsyncClient(
        base_url=settings.url,
        timeout=settings.timeout_s,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        verify=trusted(settings),
        trust_env=False,
    )
    return ServeApi(client, settings.timeout_s, fence)


def trusted(settings: ServeSettings) -> ssl.SSLContext | bool:
    """The certificates by which Ray's dashboard is verified, and ours if it asks for one."""
    if settings.ca_file is None and settings.certificate_file is None:
        return True
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except (ssl.SSLError, OSError) as error:
        raise SettingsError(f"serve.ca_file: holds no certificate: {error}") from error
    if settings.certificate_file is not None:
        try:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(f"serve.certificate_file, serve.key_file: {error}") from error
    return context


def serve_source(
    settings: Settings, api: ServeApi, published: Published = nothing_published
) -> ServeSource:
    """The deployments of the settings, as Serve sees them."""
    chosen = {
        DeploymentId(entry.application, entry.deployment): (
            Actuation(entry.actuation) if entry.actuation else None
        )
        for entry in settings.deployments
    }
    return ServeSource(api, chosen, settings.serve.elastic, published)


def prometheus_options(settings: PrometheusSettings) -> PrometheusOptions:
    """How to reach Prometheus."""
    secret = settings.bearer, settings.password
    bearer, password = (value.get_secret_value() if value else None for value in secret)
    return PrometheusOptions(
        url=settings.url,
        timeout_s=settings.timeout_s,
        headers={name: value.get_secret_value() for name, value in settings.headers.items()},
        tenant=settings.tenant,
        bearer=bearer,
        bearer_file=settings.bearer_file,
        username=settings.username,
        password=password,
        ca_file=settings.ca_file,
        certificate_file=settings.certificate_file,
        key_file=settings.key_file,
    )


def metrics_source(settings: Settings, client: PrometheusClient) -> PrometheusSource:
    """The readings of one tick."""
    chosen = settings.prometheus
    return PrometheusSource(
        client, chosen.selector, chosen.scrape_s, chosen.client_ttft, chosen.timeout_s
    )


def backfill(settings: Settings, client: PrometheusClient) -> Backfill:
    """The history at the start."""
    periods = Periods.of_season(settings.season_s, settings.tick_s)
    chosen = settings.prometheus
    return Backfill(client, chosen.selector, chosen.scrape_s, periods.bin_s, periods.window_s)
