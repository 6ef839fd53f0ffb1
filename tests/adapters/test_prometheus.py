"""What Prometheus answers becomes readings; each way it can fail becomes one error."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.adapters.prometheus import lateness, names
from controller.adapters.prometheus.backfill import POINTS, Backfill
from controller.adapters.prometheus.client import (
    PrometheusClient,
    PrometheusError,
    PrometheusOptions,
)
from controller.adapters.prometheus.identity import ambiguities
from controller.adapters.prometheus.samples import gpu_of_replicas, gpus, latest
from controller.adapters.prometheus.source import MetricsView, PrometheusSource
from controller.core.types import DeploymentId, Replica, Replicas, ReplicaState, Sample
from tests.adapters.fake_server import Answer, Fake, serving, vector

SHARED = Path(__file__).resolve().parents[3] / "shared" / "scrapes"
INF = float("inf")
LLM = DeploymentId("chat", "LLM")
ODD = DeploymentId('a "b"', "LLMServer:meta--Llama-3_1")
NOW_S = 1_000.0


def replicas(*ids: str) -> Replicas:
    members = tuple(
        Replica(name, ReplicaState.RUNNING, 0.0, node_ip="10.0.0.3", pid=4242) for name in ids
    )
    return Replicas(len(ids), len(ids), members)


def matrix(name: str, values: list[tuple[float, float]], **labels: str) -> dict[str, Any]:
    return {
        "metric": {"__name__": name, "instance": "i", "job": "ray", **labels},
        "values": [[at_s, str(value)] for at_s, value in values],
    }


def chat(name: str, value: float, at_s: float = 998.0, **labels: str) -> dict[str, Any]:
    labels = {"application": "chat", "deployment": "LLM", **labels}
    return matrix(name, [(at_s - 5, value / 2), (at_s, value)], **labels)


SERIES = [
    chat("ray_serve_num_router_requests_total", 100, handle="h1"),
    chat("ray_serve_num_router_requests_total", 7, handle="h2"),
    chat("ray_serve_deployment_request_counter_total", 90, replica="r1", route="/"),
    chat("ray_serve_deployment_queued_queries", 3, handle="h1"),
    chat("ray_serve_replica_processing_queries", 4, replica="r1"),
    chat("ray_serve_replica_processing_queries", 2, replica="gone"),
    matrix(
        "ray_serve_num_router_requests_total",
        [(998.0, 5.0)],
        application=ODD.application,
        deployment=ODD.deployment,
        handle="h9",
    ),
    matrix("ray_vllm_num_requests_waiting", [(998.0, 2.0)], ReplicaId="r1", engine="0"),
    matrix("ray_vllm_kv_cache_usage_perc", [(998.0, 0.9)], ReplicaId="r1", engine="0"),
    matrix("ray_vllm_generation_tokens_total", [(998.0, 640.0)], ReplicaId="r1", engine="0"),
    matrix("ray_vllm_generation_tokens_total", [(998.0, 11.0)], ReplicaId="other", engine="0"),
    matrix("ray_component_gpu_percentage", [(998.0, 80.0)], ip="10.0.0.3", pid="4242"),
]


def from_series(series: list[dict[str, Any]]) -> Any:
    """Answers a raw selector by the names it asks for; anything else is empty."""

    def answer(_: str, parameters: dict[str, str]) -> Answer:
        wanted = re.match(r'\{__name__=~"([^"]+)"', parameters["query"])
        if wanted is None:
            return vector([])
        chosen = [s for s in series if re.fullmatch(wanted[1], s["metric"]["__name__"])]
        return vector(chosen)

    return answer


@pytest.fixture
def fake() -> Iterator[Fake]:
    with serving(from_series(SERIES)) as server:
        yield server


def source(fake: Fake) -> PrometheusSource:
    return PrometheusSource(PrometheusClient(PrometheusOptions(fake.url)), {"cluster": "c1"}, 5.0)


def read(fake: Fake) -> MetricsView:
    known = {LLM: replicas("r1"), ODD: replicas("r2")}
    return source(fake).read(NOW_S, known, {LLM: 2.0, ODD: 2.0})


def test_series_become_readings_with_their_own_times(fake: Fake) -> None:
    readings = read(fake).readings[LLM]
    assert readings.arrivals is not None
    assert sorted(s.value for s in readings.arrivals.values()) == [7, 100]
    assert {s.at_s for s in readings.arrivals.values()} == {998.0}
    assert readings.queued is not None
    assert list(readings.queued.values()) == [Sample(3, 998)]
    assert readings.ongoing == {"r1": Sample(4, 998), "gone": Sample(2, 998)}
    assert readings.waiting == {"r1": Sample(2, 998)}
    assert readings.kv_cache_ratio == {"r1": Sample(0.9, 998)}
    assert readings.output_tokens is not None
    assert [s.value for s in readings.output_tokens.values()] == [640]
    assert readings.gpu_ratio == {"r1": Sample(0.8, 998)}


def test_names_of_every_kind_find_their_series(fake: Fake) -> None:
    readings = read(fake).readings[ODD]
    assert readings.arrivals is not None
    assert [s.value for s in readings.arrivals.values()] == [5]
    assert readings.ongoing == {}


def test_a_tick_takes_few_queries_whatever_the_number_of_deployments(fake: Fake) -> None:
    many = {DeploymentId("app", f"d{i}"): replicas(f"x{i}") for i in range(50)}
    view = source(fake).read(NOW_S, many, dict.fromkeys(many, 2.0))
    assert view.queries <= 15
    assert all('cluster="c1"' in asked["query"] for asked in fake.asked)


def test_counters_are_found_with_and_without_their_suffix() -> None:
    """S7: versions differ in whether a counter's name ends in _total."""
    bare = [chat("ray_serve_num_router_requests", 100, handle="h1")]
    with serving(from_series(bare)) as fake:
        readings = read(fake).readings[LLM]
    assert readings.arrivals is not None
    assert [s.value for s in readings.arrivals.values()] == [100]


HTML = (200, "text/html", b"<html>Please log in</html>")
FAILURES = [
    pytest.param(lambda *_: HTML, "not JSON", id="a login page with 200"),
    pytest.param(
        lambda *_: (200, "application/json", b'{"status": "succ'), "not JSON", id="cut off"
    ),
    pytest.param(
        lambda *_: (200, "application/json", b'{"status": "success"}'), "no result", id="no data"
    ),
    pytest.param(lambda *_: (503, "text/plain", b"busy"), "503", id="503"),
    pytest.param(lambda *_: (429, "text/plain", b"slow down"), "429", id="429"),
    pytest.param(
        lambda *_: (200, "application/json", b'{"data": {"result": 7}}'), "no list", id="no list"
    ),
    pytest.param(lambda *_: vector([{"metric": {}}]), "unusable series", id="no samples"),
    pytest.param(
        lambda *_: vector([{"metric": {"__name__": "ray_serve_replica_processing_queries"}}]),
        "unusable series",
        id="no labels",
    ),
]


@pytest.mark.parametrize(("answer", "said"), FAILURES)
def test_a_bad_answer_is_said_and_gives_no_data(answer: Any, said: str) -> None:
    with serving(answer) as fake:
        view = read(fake)
    assert view.errors
    assert said in " ".join(view.errors)
    assert view.readings[LLM].arrivals is None
    assert view.readings[LLM].replicas == replicas("r1")


def test_a_silent_server_is_asked_once_a_tick() -> None:
    client = PrometheusClient(PrometheusOptions("http://127.0.0.1:1", timeout_s=0.5))
    view = PrometheusSource(client, {}, 5.0).read(NOW_S, {LLM: replicas("r1")}, {LLM: 2.0})
    assert len(view.errors) == 1
    assert "refused" in view.errors[0]
    assert view.readings[LLM].arrivals is None


def test_credentials_are_sent_and_never_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("canary-one\n")
    with serving(lambda *_: vector([])) as fake:
        options = PrometheusOptions(
            fake.url, headers={"X-Canary": "canary-two"}, tenant="team-a", bearer_file=token
        )
        client = PrometheusClient(options)
        client.instant("up")
        token.write_text("rotated")
        client.instant("up")
    assert fake.headers[0]["authorization"] == "Bearer canary-one"
    assert fake.headers[1]["authorization"] == "Bearer rotated"
    assert fake.headers[0]["x-scope-orgid"] == "team-a"
    assert fake.headers[0]["x-canary"] == "canary-two"
    assert "canary" not in repr(options)


def test_a_missing_token_file_is_named(tmp_path: Path) -> None:
    client = PrometheusClient(PrometheusOptions("http://127.0.0.1:1", bearer_file=tmp_path / "t"))
    with pytest.raises(PrometheusError, match="bearer_file"):
        client.instant("up")


@pytest.mark.parametrize(
    ("buckets", "upper", "lower"),
    [
        pytest.param({1.0: 90, 2.0: 99, INF: 100}, 0.01, 0.01, id="a bound at the SLO"),
        pytest.param({1.0: 90, 2.5: 99, INF: 100}, 0.10, 0.01, id="between two bounds"),
        pytest.param({5.0: 100, INF: 100}, 1.0, 0.0, id="no bound below the SLO"),
        pytest.param({1.0: 0, 2.0: 0, INF: 0}, 0.0, 0.0, id="no first token at all"),
    ],
)
def test_late_first_tokens_are_bounded_by_buckets(
    buckets: dict[float, float], upper: float, lower: float
) -> None:
    late = lateness.of_client(buckets, 2.0, 20.0)
    assert late is not None
    assert late.upper == pytest.approx(upper)
    assert late.lower == pytest.approx(lower)
    assert late.rate_rps == buckets[INF] / 20


def test_wait_and_engine_time_bound_what_the_client_feels() -> None:
    """5 % wait over 1 s and 3 % of engines take over 1 s: at most 8 % are later than 2 s."""
    wait = {0.5: 80.0, 1.0: 95.0, 2.0: 100.0, INF: 100.0}
    engine = {0.5: 90.0, 1.0: 97.0, 2.5: 99.0, INF: 100.0}
    late = lateness.of_parts(wait, engine, 2.0, 20.0)
    assert late is not None
    assert late.upper == pytest.approx(0.08)
    assert late.lower == pytest.approx(0.01)


def test_an_absent_histogram_is_no_data() -> None:
    """S6: no histogram, no late share; never zero."""
    assert lateness.of_client({}, 2.0, 20.0) is None
    assert lateness.of_parts({}, {1.0: 5.0, INF: 5.0}, 2.0, 20.0) is None


def test_the_nearest_measurable_slos_are_named() -> None:
    vllm = [0.25, 0.5, 0.75, 1.0, 2.5, 5.0, INF]
    assert lateness.measurable(vllm, 2.0) == (1.0, 2.5)
    assert lateness.measurable(vllm, 1.0) == (1.0, 1.0)
    assert lateness.measurable(vllm, 0.1) == (None, 0.25)


def two_copies(**differing: str) -> list[dict[str, Any]]:
    base = {"SessionName": "s1", "WorkerId": "w", "application": "a", "deployment": "d"}
    first = matrix(names.QUEUED, [(1.0, 1.0)], **base)
    return [first, {**first, "metric": {**first["metric"], **differing}}]


@pytest.mark.parametrize(
    ("series", "said"),
    [
        pytest.param(two_copies(SessionName="s2"), "2 Ray sessions", id="two sessions"),
        pytest.param(two_copies(replica_label="b"), "replica_label", id="an HA pair"),
        pytest.param(two_copies(job="ray2"), "job", id="scraped by two jobs"),
    ],
)
def test_what_must_not_be_added_up_is_said(series: list[dict[str, Any]], said: str) -> None:
    problems = ambiguities(series)
    assert len(problems) == 1
    assert said in problems[0]
    assert "prometheus.selector" in problems[0]


def test_one_cluster_scraped_once_is_fine() -> None:
    of_serve = [s for s in SERIES if s["metric"]["__name__"] in names.SERVE]
    assert ambiguities(of_serve) == []


def test_history_is_read_in_chunks_within_the_limit_of_points() -> None:
    def answer(_: str, parameters: dict[str, str]) -> Answer:
        if "start" not in parameters:
            return vector([])
        start, end = float(parameters["start"]), float(parameters["end"])
        points = (end - start) / float(parameters["step"]) + 1
        assert points <= 11_000
        return vector(
            [
                {
                    "metric": {"application": "chat", "deployment": "LLM"},
                    "values": [[start, "1.5"], [end, "2.5"], [end - 20, "NaN"]],
                }
            ]
        )

    shares: list[float] = []
    with serving(answer) as fake:
        client = PrometheusClient(PrometheusOptions(fake.url))
        past = Backfill(client, {}, 5.0, 10.0, 60.0).read(1e9, 14 * 86_400, shares.append)
    rates = past.rates[LLM]
    assert len(rates) == 14 * 8640
    assert rates[0] == 1.5
    assert rates[POINTS - 1] == 2.5
    assert rates[POINTS] == 1.5
    assert past.start_s == 1e9 - 14 * 86_400
    assert shares[-1] == 1.0


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the recorded scrapes in ../shared")
def test_gpus_are_read_from_ray_or_from_dcgm() -> None:
    page = (SHARED / "gpu-names.prom").read_text().splitlines()
    series = []
    for line in page:
        found = re.match(r"(\w+)\{(.*)\} (\S+)$", line)
        if found:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', found[2]))
            series.append(matrix(found[1], [(998.0, float(found[3]))], **labels))
    of_ray = gpus(series)
    assert [(g.node, g.gpu, g.utilization_ratio) for g in of_ray] == [("10.0.0.3", "0", 0.87)]
    assert of_ray[0].memory_ratio == pytest.approx(71 / 81)
    dcgm = [s for s in series if s["metric"]["__name__"].startswith("DCGM")]
    assert [(g.node, g.utilization_ratio) for g in gpus(dcgm)] == [("node-3", 0.87)]
    assert gpu_of_replicas(series, replicas("r1")) == {"r1": Sample(0.8, 998)}
    assert gpu_of_replicas(dcgm, replicas("r1")) == {}


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the recorded scrapes in ../shared")
def test_every_name_we_read_is_on_the_recorded_pages() -> None:
    """A12: a metric that the running Ray or vLLM does not emit fails the build."""
    pages = (
        "".join(
            gzip.decompress((SHARED / name).read_bytes()).decode()
            for name in ("ray-serve-2.60.prom.gz", "ray-vllm-0.29.prom.gz")
        )
        + (SHARED / "gpu-names.prom").read_text()
    )
    read_names = (*names.SERVE, *names.ENGINE, *names.GPU, names.ROUTER_WAIT, names.ENGINE_TTFT)
    missing = [
        name
        # Ray exports the preemptions from the first one on; tests/vllm sees them live.
        for name in {*read_names, names.STARTS} - {names.PREEMPTIONS}
        if not any(f"\n{spelling}{{" in pages for spelling in names.spellings(name))
    ]
    assert missing == []


def test_the_last_sample_is_taken() -> None:
    assert latest({"values": [[1, "2"], [3, "4"]]}) == Sample(4, 3)
    assert latest({"value": [3, "4"]}) == Sample(4, 3)
