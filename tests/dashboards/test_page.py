"""Panels of what rarely happens, against the daemon's own page with that in it."""

import shutil
import time
from pathlib import Path

import pytest

from controller.adapters.telemetry import Telemetry
from controller.core.types import Outcome, Sample, Tick
from controller.demo.metrics_server import PrometheusServer
from controller.demo.processes import ProcessGroup
from dashboards.model import Proof
from dashboards.proof import queries
from tests.adapters.fake_server import Answer, serving
from tests.core.worlds import World, planner
from tests.dashboards.asking import Span, unanswered, wait_answered

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(60),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus: make setup"),
]
VALUES = {"application": "app", "deployment": "llm", "__rate_interval": "5s"}


class RefusingDaemon:
    """The page of a daemon that is given a queue of NaN before each scrape."""

    def __init__(self) -> None:
        self.telemetry = Telemetry(active=True)
        self._live, self._planner = World.with_replicas(3), planner()

    def answer(self, path: str, parameters: dict[str, str]) -> Answer:
        nan = {"": Sample(float("nan"), self._live.at_s + 9)}
        decision = self._live.step(self._planner, queued=nan)
        done = ((decision, Outcome(decision.action, True, "")),)
        self.telemetry.record(Tick(self._live.at_s, done, {}))
        return 200, "text/plain; version=0.0.4", self.telemetry.page()


def test_panels_of_rare_events_have_data(tmp_path: Path) -> None:
    asked = [query for query in queries() if query.proof is Proof.PAGE]
    assert asked
    with ProcessGroup(tmp_path / "logs") as group, serving(RefusingDaemon().answer) as daemon:
        targets = {"leadtime": daemon.url.removeprefix("http://")}
        server = PrometheusServer(group, tmp_path / "prometheus", targets=targets)
        server.start()
        wait_answered(server.url, "count_over_time(leadtime_leader[1m]) > 4")
        end_s = time.time()  # noqa: TID251
        assert unanswered(server.url, asked, VALUES, Span(end_s - 5, end_s)) == []
