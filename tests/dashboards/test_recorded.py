"""Panels against recorded pages of the real servers, brought to life and scraped by Prometheus."""

import gzip
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup
from dashboards.model import Proof
from dashboards.proof import PanelQuery, queries
from tests.adapters.fake_server import Answer, serving
from tests.dashboards.asking import Span, unanswered, wait_answered

SCRAPES = Path(__file__).resolve().parents[2].parent / "shared" / "scrapes"
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not SCRAPES.is_dir(), reason="../shared/scrapes is absent"),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus: make setup"),
]
SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$")
GROWS = ("_total", "_bucket", "_count", "_sum")
RENAMED = "ray_vllm_kv_cache_usage_perc"
VALUES = {
    "application": ".*",
    "deployment": ".*",
    "replica": ".*",
    "model": ".*",
    "ahead": "2",
    "__rate_interval": "5s",
    "__interval": "1s",
    "__range": "10s",
}
# What a page of a single idle moment cannot show.
NOT_ON_THE_PAGE = {"Preemptions", "Prefix cache hits"}


def page(name: str) -> str:
    path = SCRAPES / name
    return gzip.decompress(path.read_bytes()).decode() if name.endswith(".gz") else path.read_text()


class Living:
    """A recorded page whose counters grow from the first look on, a tenth a second."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._began_s = time.monotonic()

    def answer(self, path: str, parameters: dict[str, str]) -> Answer:
        factor = 1 + (time.monotonic() - self._began_s) / 10
        lines = [self._grown(line, factor) for line in self._lines]
        return 200, "text/plain; version=0.0.4", ("\n".join(lines) + "\n").encode()

    def _grown(self, line: str, factor: float) -> str:
        match = SAMPLE.match(line)
        if match is None or not match[1].endswith(GROWS):
            return line
        return f"{match[1]}{match[2] or ''} {float(match[3]) * factor}"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that has scraped the pages for some seconds; `renamed` has one metric under
    another name."""
    folder = tmp_path_factory.mktemp("recorded")
    with ProcessGroup(folder / "logs") as group, ExitStack() as ends:
        vllm = page("ray-vllm-0.29.prom.gz")
        pages = {"gpu": page("gpu-names.prom"), "serve": page("ray-serve-2.60.prom.gz")}
        pages["vllm"] = vllm
        targets = {
            name: ends.enter_context(serving(Living(text).answer)).url.removeprefix("http://")
            for name, text in pages.items()
        }
        server = PrometheusServer(group, folder / "prometheus", targets=targets)
        server.start()
        wait_answered(server.url, "min(count_over_time(up[1m])) > 8")
        yield server
        server.stop()


def of(proof: Proof) -> list[PanelQuery]:
    return [query for query in queries() if query.proof is proof]


def now() -> Span:
    end_s = time.time()  # noqa: TID251
    return Span(end_s - 8, end_s)


def test_every_gpu_panel_has_data(prometheus: PrometheusServer) -> None:
    asked = of(Proof.GPU)
    assert len({query.panel for query in asked}) >= 6
    assert unanswered(prometheus.url, asked, VALUES, now()) == []


def test_panels_of_the_gcs_have_data_on_its_recorded_page(prometheus: PrometheusServer) -> None:
    assert of(Proof.RECORDED)
    assert unanswered(prometheus.url, of(Proof.RECORDED), VALUES, now()) == []


def engine_panels() -> list[PanelQuery]:
    """Panels that need nothing but vLLM's page and Serve's beside it."""
    return [
        query
        for query in queries()
        if "ray_vllm_" in query.expr
        and "leadtime" not in query.expr
        and query.proof is Proof.LIVE
        and query.panel not in NOT_ON_THE_PAGE
    ]


def test_engine_panels_have_data_on_the_page_of_a_real_vllm(prometheus: PrometheusServer) -> None:
    assert len({query.panel for query in engine_panels()}) >= 9
    assert unanswered(prometheus.url, engine_panels(), VALUES, now()) == []


def test_a_metric_renamed_at_its_source_is_found(prometheus: PrometheusServer) -> None:
    renamed = [
        query._replace(expr=query.expr.replace(RENAMED, "ray_vllm_kv_cache_usage_ratio"))
        for query in engine_panels()
    ]
    found = unanswered(prometheus.url, renamed, VALUES, now())
    assert [said.split(":")[0] for said in found] == ["Leadtime / Serving / KV cache in use"]


def test_the_kv_cache_is_that_of_the_deployment(prometheus: PrometheusServer) -> None:
    (query,) = (query for query in queries() if query.panel == "KV cache in use")
    others = {**VALUES, "deployment": "nobody"}
    assert unanswered(prometheus.url, [query], others, now())
