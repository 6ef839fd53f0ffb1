"""One tick's readings of every deployment, in a handful of queries whatever their number."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

from controller.adapters.prometheus import lateness, names, samples
from controller.adapters.prometheus.client import (
    UNUSABLE,
    PrometheusClient,
    PrometheusError,
    PrometheusSilent,
    Series,
)
from controller.adapters.prometheus.identity import ambiguities
from controller.adapters.prometheus.promql import duration, selector
from controller.adapters.prometheus.samples import Fields, Gpu
from controller.core.types import DeploymentId, Readings, Replicas, Sample, Stage

Parsed = TypeVar("Parsed")
Known = Mapping[DeploymentId, Replicas | None]
Calls = Mapping[str, Mapping[DeploymentId, samples.Samples]]
BY_DEPLOYMENT = "application, deployment, le"
BY_REPLICA = "ReplicaId, le"


@dataclass(frozen=True)
class MetricsView:
    """What Prometheus said at one tick, with what went wrong and how many queries it took;
    `silent` when it stopped answering, `retry_after_s` how long it asks to be left alone."""

    readings: Mapping[DeploymentId, Readings]
    gpus: tuple[Gpu, ...] = ()
    errors: tuple[str, ...] = ()
    queries: int = 0
    silent: bool = False
    retry_after_s: float = 0.0


class PrometheusSource:
    """Reads the raw samples of the last three scrapes and keeps each series' last one with its
    own time; counters are given as they stand, to be differenced where they are judged."""

    def __init__(
        self,
        client: PrometheusClient,
        labels: Mapping[str, str],
        scrape_s: float,
        client_ttft: str = names.CLIENT_TTFT,
        round_s: float | None = None,
    ) -> None:
        self._client = client
        self._labels = labels
        self._client_ttft = client_ttft
        self._errors: list[str] = []
        self._queries = 0
        self._silent = False
        self._retry_after_s = 0.0
        self._round_s = round_s
        self.window_s = max(5.0, float(ceil(3 * scrape_s)))
        self.lateness_window_s = max(15.0, 4 * scrape_s)

    def read(
        self, now_s: float, replicas: Known, slo_ttft_s: Mapping[DeploymentId, float]
    ) -> MetricsView:
        """Readings of each deployment in `replicas`; what could not be asked is None."""
        self._errors, self._queries, self._silent, self._retry_after_s = [], 0, False, 0.0
        self._client.begin_round(self._round_s)
        owners = _owners(replicas)
        serve, calls = self._raw(names.SERVE, _of_serve) or (None, {})
        engine = self._raw(names.ENGINE, lambda answer: samples.by_replica(answer, owners))
        late = self._late(owners, slo_ttft_s)
        gpu = self._raw(names.GPU, samples.checked)
        readings = {}
        for target, known in replicas.items():
            fields: Fields = {}
            for part, wanted in ((serve, samples.SERVE_FIELDS), (engine, samples.ENGINE_FIELDS)):
                if part is not None:
                    fields |= {field: {} for field in wanted.values()}
                    fields |= part.get(target, {})
            if serve is not None:
                of_application = serve.get(DeploymentId(target.application, ""), {})
                fields["errors"] = of_application.get("errors", {})
            if gpu is not None:
                fields["gpu_ratio"] = samples.gpu_of_replicas(gpu, known)
            fields |= _late_fields(late.get(target), now_s)
            stages = _stages(target, known, serve or {}, calls)
            readings[target] = Readings(now_s, replicas=known, stages=stages, **fields)
        return MetricsView(
            readings,
            samples.gpus(gpu or ()),
            tuple(self._errors),
            self._queries,
            self._silent,
            self._retry_after_s,
        )

    def clock_s(self) -> float:
        """Prometheus's present time, in seconds since the epoch; raises PrometheusError."""
        try:
            return samples.latest(self._client.instant("vector(time())")[0]).value
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise PrometheusError("its clock is no number") from error

    def ambiguities(self) -> list[str]:
        """Why the series that match must not be added up, if so; raises PrometheusError."""
        spelled = (*names.spellings(names.ARRIVALS), names.QUEUED, names.ONGOING)
        matched = f"{selector(spelled, self._labels)}[{duration(self.window_s)}]"
        try:
            return ambiguities(self._client.instant(matched))
        except UNUSABLE as error:
            raise PrometheusError(
                f"unusable series: {self._client.redacted(repr(error))}"
            ) from None

    def bounds(self, replicas: Known) -> dict[DeploymentId, tuple[str, list[float]]]:
        """The histogram that each deployment's SLO is measured by, and its bucket bounds in
        seconds: what clients felt, else the engines'. Raises PrometheusError."""
        try:
            return self._bounds(replicas)
        except UNUSABLE as error:
            raise PrometheusError(
                f"unusable series: {self._client.redacted(repr(error))}"
            ) from None

    def _bounds(self, replicas: Known) -> dict[DeploymentId, tuple[str, list[float]]]:
        owners = _owners(replicas)
        found = {}
        for name, by, owner in (
            (names.ENGINE_TTFT, BY_REPLICA, lambda labels: owners.get(labels["ReplicaId"])),
            (self._client_ttft, BY_DEPLOYMENT, _deployment),
        ):
            grouped = self._client.instant(f"group by ({by}) ({selector([name], self._labels)})")
            for target, counts in samples.histograms(grouped, owner).items():
                found[target] = (name, sorted(counts))
        return found

    def _late(
        self, owners: Mapping[str, DeploymentId], slo_ttft_s: Mapping[DeploymentId, float]
    ) -> dict[DeploymentId, lateness.Lateness]:
        """Late shares: of what clients felt, or bounded by router wait and engine TTFT."""
        window_s = self.lateness_window_s
        felt = self._histograms(self._client_ttft, BY_DEPLOYMENT, _deployment) or {}
        found = {
            target: lateness.of_client(felt[target], ttft_s, window_s)
            for target, ttft_s in slo_ttft_s.items()
            if target in felt
        }
        if len(found) < len(slo_ttft_s):
            wait = self._histograms(names.ROUTER_WAIT, BY_DEPLOYMENT, _deployment) or {}
            engine = self._histograms(
                names.ENGINE_TTFT, BY_REPLICA, lambda labels: owners.get(labels["ReplicaId"])
            )
            for target in slo_ttft_s.keys() - found.keys():
                wait_s = {bound / 1000: count for bound, count in wait.get(target, {}).items()}
                parts = (engine or {}).get(target, {})
                found[target] = lateness.of_parts(wait_s, parts, slo_ttft_s[target], window_s)
        return {target: late for target, late in found.items() if late is not None}

    def _raw(self, wanted: Iterable[str], parse: Callable[[list[Series]], Parsed]) -> Parsed | None:
        spelled = [spelling for name in wanted for spelling in names.spellings(name)]
        return self._ask(f"{selector(spelled, self._labels)}[{duration(self.window_s)}]", parse)

    def _histograms(
        self,
        name: str,
        by: str,
        owner: Callable[[Mapping[str, str]], DeploymentId | None],
    ) -> dict[DeploymentId, dict[float, float]] | None:
        increase = f"increase({selector([name], self._labels)}[{duration(self.lateness_window_s)}])"
        return self._ask(
            f"sum by ({by}) ({increase})", lambda answer: samples.histograms(answer, owner)
        )

    def _ask(self, query: str, parse: Callable[[list[Series]], Parsed]) -> Parsed | None:
        """One query; a failure is noted and gives None. After silence nothing more is asked in
        this tick."""
        if self._silent:
            return None
        self._queries += 1
        try:
            return parse(self._client.instant(query))
        except PrometheusError as error:
            if isinstance(error, PrometheusSilent):
                self._silent, self._retry_after_s = True, error.retry_after_s
            self._errors.append(str(error))
        except UNUSABLE as error:
            said = self._client.redacted(repr(error))
            self._errors.append(f"unusable series in the answer to {query[:120]}: {said}")
        return None


def _of_serve(answer: list[Series]) -> tuple[dict[DeploymentId, Fields], Calls]:
    return samples.by_deployment(answer), samples.calls_by_actor(answer)


def _stages(
    target: DeploymentId,
    known: Replicas | None,
    serve: Mapping[DeploymentId, Fields],
    calls: Calls,
) -> dict[DeploymentId, Stage]:
    """The deployments through which requests reach this one, each with the calls that its
    replicas made on the way."""
    callers = known.callers if known is not None else {}
    on_the_way = {target, *callers}
    found = {}
    for caller, actors in callers.items():
        fields = serve.get(caller, {})
        made: dict[DeploymentId, dict[str, Sample]] = {}
        for actor in actors & calls.keys():
            for callee in calls[actor].keys() & on_the_way:
                made.setdefault(callee, {}).update(calls[actor][callee])
        found[caller] = Stage(fields.get("arrivals", {}), fields.get("queued", {}), made)
    return found


def _owners(replicas: Known) -> dict[str, DeploymentId]:
    return {
        member.id: target
        for target, known in replicas.items()
        if known is not None
        for member in known.members
    }


def _deployment(labels: Mapping[str, str]) -> DeploymentId:
    return DeploymentId(labels.get("application", ""), labels.get("deployment", ""))


def _late_fields(late: lateness.Lateness | None, now_s: float) -> Fields:
    if late is None:
        return {}
    return {
        "first_tokens_rps": {"": Sample(late.rate_rps, now_s)},
        "late_ratio": {"": Sample(late.upper, now_s)},
    }
