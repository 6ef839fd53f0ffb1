"""What the cluster says in one round: Serve's account and Prometheus's."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from controller.adapters.prometheus.client import PrometheusError
from controller.adapters.prometheus.source import PrometheusSource
from controller.adapters.serve.api import ServeError, Unreachable
from controller.adapters.serve.source import ServeSource
from controller.adapters.telemetry import Telemetry
from controller.core.ports import Known
from controller.core.types import DeploymentId, Readings
from controller.loop import wall_clock_s
from controller.patience import Gate, NotAnswered
from controller.promises import slo_of
from controller.settings import Settings

CLOCKS_EVERY_S = 60.0


class ClusterSource:
    """Serve's account and Prometheus's, one after the other, failures noted and not raised."""

    def __init__(
        self,
        settings: Settings,
        serve: ServeSource,
        metrics: PrometheusSource,
        watch: Telemetry,
        unread: Callable[[], list[str]] = list,
    ) -> None:
        self._settings = settings
        self._unread = unread
        self._serve = serve
        self._metrics = metrics
        self._watch = watch
        self._known: dict[DeploymentId, None] = {}
        self._failures: tuple[str, ...] = ()
        self._unambiguous = False
        self._clocks_s = float("-inf")
        chance, tick_s = np.random.default_rng(), settings.tick_s
        self._serve_gate = Gate(settings.serve.timeout_s + 1.0, tick_s, chance)
        self._metrics_gate = Gate(settings.prometheus.timeout_s + 1.0, tick_s, chance, False)

    @property
    def failures(self) -> tuple[str, ...]:
        """What went wrong in the last round."""
        return self._failures

    async def replicas(self) -> Known:
        """Serve's account; None for every deployment known when it gives none."""
        self._failures = ()
        try:
            found = await self._serve_gate.ask(self._serve.read)
        except (ServeError, NotAnswered) as error:
            if isinstance(error, Unreachable):
                self._serve_gate.failed(error.retry_after_s)
            self._fail("serve", [str(error)])
            return dict.fromkeys(self._known)
        self._serve_gate.succeeded()
        self._known.update(dict.fromkeys(found))
        return found

    async def readings(self, now_s: float, replicas: Known) -> Mapping[DeploymentId, Readings]:
        """Prometheus's account of those deployments."""
        if not self._unambiguous:
            problems = await self.ambiguities()
            if problems:
                self._fail("prometheus", problems)
                return {t: Readings(now_s, replicas=known) for t, known in replicas.items()}
        ttft_s = {target: slo_of(self._settings, target).ttft_s for target in replicas}
        try:
            view = await self._metrics_gate.ask(
                lambda: asyncio.to_thread(self._metrics.read, now_s, replicas, ttft_s)
            )
        except NotAnswered as error:
            self._fail("prometheus", [str(error)])
            return {t: Readings(now_s, replicas=known) for t, known in replicas.items()}
        if view.silent:
            self._metrics_gate.failed(view.retry_after_s)
        else:
            self._metrics_gate.succeeded()
        self._fail("prometheus", view.errors)
        self._fail("floors", self._unread())
        for gpu in view.gpus:
            self._watch.gpu(gpu.node, gpu.gpu, gpu.utilization_ratio, gpu.memory_ratio)
        if abs(now_s - self._clocks_s) >= CLOCKS_EVERY_S:
            self._clocks_s = now_s
            self._watch.clock_skew(await asyncio.to_thread(self._ahead_s))
        return view.readings

    def _ahead_s(self) -> float | None:
        """By how much our clock is ahead of Prometheus's; None if Prometheus does not say."""
        before_s = wall_clock_s()
        try:
            theirs_s = self._metrics.clock_s()
        except PrometheusError:
            return None
        return (before_s + wall_clock_s()) / 2 - theirs_s

    async def ambiguities(self) -> list[str]:
        """Why the selected series must not be added up; nothing if they may, or if Prometheus
        does not say (it is asked again at the next tick)."""
        try:
            problems = await asyncio.to_thread(self._metrics.ambiguities)
        except PrometheusError:
            return []
        self._unambiguous = not problems
        return problems

    def _fail(self, source: str, errors: Iterable[str]) -> None:
        for error in errors:
            self._failures += (f"{source}: {error}",)
            self._watch.failed_source(source, error)
