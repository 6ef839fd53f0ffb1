"""A backtest whose runs are tasks of a real Ray, one of a real Prometheus' history, and its report
in a real browser."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from controller.demo.cluster import RayCluster
from controller.demo.history import write_blocks
from controller.demo.metrics_server import PrometheusServer
from controller.demo.model import Past
from controller.demo.processes import ProcessGroup
from controller.loop import wall_clock_s
from tests.page.test_browser import DESK, FLAGS, opened

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

HISTORY_S = 3 * 3600
TARGET = ("chat", "LLM")


def history(seed: int) -> Past:
    """Three hours of one replica's metrics: two swells, requests of one second."""
    rng = np.random.default_rng(seed)
    rate_rps = 2 + 1.5 * np.sin(2 * np.pi * np.arange(HISTORY_S) / 5400)
    arrived = np.cumsum(rng.poisson(rate_rps)).astype(float)
    done = np.concatenate([[0.0], arrived[:-1]])
    return Past(arrived, done, (arrived - done)[:, None])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    folder = tmp_path_factory.mktemp("history")
    group = ProcessGroup(folder / "logs")
    server = PrometheusServer(group, folder / "prometheus")
    now_s = wall_clock_s()
    write_blocks(server.data, [history(3)], float(int(now_s)), now_s, TARGET)
    server.start()
    try:
        yield server
    finally:
        group.end()


def backtest(folder: Path, load: list[str], engine: str, **env: str) -> dict[str, Any]:
    """The JSON of a backtest with a cache of its own."""
    out = folder / f"{engine}.json"
    command = [str(Path(sys.executable).with_name("leadtime")), "backtest", *load]
    command += ["--replicas", "3", "--cap", "9", "--lead", "60", "--quick"]
    command += ["--policies", "leadtime,clairvoyant,ray", "--engine", engine]
    command += ["--cache", str(folder / engine), "--json", str(out)]
    command += ["--html", str(folder / "report.html")]
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(out.read_text())
    return said


def test_ray_and_processes_replay_the_same_load_alike(tmp_path: Path) -> None:
    load = ["--synthetic", "seed=3,days=0.15"]
    here = backtest(tmp_path, load, "processes")
    with RayCluster(ProcessGroup(tmp_path / "ray"), cpus=2) as cluster:
        address = f"127.0.0.1:{cluster.gcs_port}"
        there = backtest(tmp_path, load, "ray", RAY_ADDRESS=address)
    [scenario] = there["scenarios"]
    assert {run["policy"] for run in scenario["runs"]} == {"leadtime", "clairvoyant", "ray"}
    assert there == here


def test_the_report_of_a_real_history_opens_in_a_browser(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: make setup")
    load = ["--prometheus", prometheus.url, "--since", "3h"]
    [scenario] = backtest(tmp_path, load, "processes")["scenarios"]
    assert scenario["trace"] == "chat/LLM"
    url = (tmp_path / "report.html").as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        tab = opened(browser, url, DESK)
        tab.page.wait_for_selector(".js-plotly-plot .main-svg")
        assert tab.page.locator(".js-plotly-plot").count() >= 2
        assert tab.page.locator("table").count() >= 1
        assert tab.said == []
        assert tab.asked == [url], "the report asks nobody for anything"
        browser.close()
