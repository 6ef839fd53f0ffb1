"""`leadtime bench`: what is wrong is said before anything runs; what was measured is shown."""

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.bench.bottleneck import Suspect
from controller.bench.main import Measured, Order
from controller.bench.points import Point, scaling
from controller.bench.report import show, verdict, write_html, write_json
from controller.cli import app
from controller.core.types import DeploymentId

runner = CliRunner()
ORDER = Order(DeploymentId("chat", "LLM"), (1, 3), (80.0, 160.0), 2.0)
POINTS = (
    Point(1, 80.0, 80.0, 45.0, 1.0, inf, 1.8, 0.43, 0.003, 30.0),
    Point(3, 80.0, 80.0, 80.0, 0.2, 0.52, 0.52, 0.0, 0.003, 30.0),
    Point(3, 160.0, 160.0, 100.0, 0.9, 2.4, 2.4, 0.0, 0.003, 30.0),
)
SUSPECT = Suspect("proxy", "the busiest proxy uses 97% of a core", "more proxies")


def made(*points: Point, suspect: Suspect | None = SUSPECT, time_scale: float = 1.0) -> Measured:
    rows = tuple(scaling(points, 2.0))
    return Measured(replace(ORDER, time_scale=time_scale), points, rows, suspect)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--replicas", "1,zwei"], "--replicas: numbers separated by commas"),
        (["--replicas", "0"], "--replicas: each must be above 0"),
        (["--rps", "10,nan"], "--rps: each must be above 0"),
        (["--rps", ""], "--rps: numbers separated by commas"),
        (["--deployment", "chat"], "--deployment: write APPLICATION/DEPLOYMENT"),
        (["--url", "127.0.0.1:8000"], "--url: must begin with http"),
        (["--html", "/nowhere/at/all.html"], "--html: /nowhere/at is no folder"),
        ([], "--deployment: say which; the settings list 0"),
    ],
)
def test_wrong_input_ends_with_2_and_names_the_option(options: list[str], said: str) -> None:
    base = [] if not options or "--deployment" in options else ["--deployment", "chat/LLM"]
    result = runner.invoke(app, ["bench", *base, *options])
    assert result.exit_code == 2
    assert said in result.output


def test_a_dashboard_that_is_not_there_ends_with_1(tmp_path: Path) -> None:
    config = tmp_path / "leadtime.yaml"
    config.write_text("serve: {url: 'http://127.0.0.1:1'}")
    result = runner.invoke(app, ["bench", "-c", str(config), "--deployment", "chat/LLM"])
    assert result.exit_code == 1
    assert "bench:" in result.output
    assert "Traceback" not in result.output


def test_short_of_linear_names_the_bottleneck() -> None:
    assert "0.74 of linear; likely bottleneck: proxy" in verdict(made(*POINTS))
    assert "no evidence" in verdict(made(*POINTS, suspect=None))


def test_near_linear_names_none() -> None:
    good = replace(POINTS[2], completed_rps=128.0)
    assert verdict(made(POINTS[0], good)) == "3 replicas over 1: 0.95 of linear"


def test_too_little_load_is_said() -> None:
    assert "offer more" in verdict(made(POINTS[0], POINTS[1]))
    carried = replace(POINTS[0], completed_rps=80.0)
    assert "did not fill 1 replicas" in verdict(made(carried, POINTS[1]))


def test_the_table_shows_what_was_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    show(made(*POINTS, time_scale=8.0))
    shown = capsys.readouterr().out
    assert "never came" in shown  # p95 over all, with 43 % refused
    assert "43.0%" in shown
    assert "8 times slower" in " ".join(shown.split())


def test_json_holds_all_and_only_finite_numbers(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    write_json(made(*POINTS, replace(POINTS[0], replicas=4, completed_rps=nan)), path)
    said = json.loads(path.read_text())
    assert said["points"][0]["ttft_p95_s"] is None
    assert said["points"][0]["served_ttft_p95_s"] == 1.8
    assert said["bottleneck"]["name"] == "proxy"


def test_the_page_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "bench.html"
    write_html(made(*POINTS), path)
    page = path.read_text()
    assert "likely bottleneck: proxy" in page
    assert "Plotly.newPlot" in page
    assert "<script src" not in page
