"""`leadtime backtest` as a user meets it: loads in; table, JSON and report out; plain errors."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from controller.adapters.prometheus.backfill import Backfill, Past
from controller.cli import app
from controller.commands import recordings
from controller.commands.recordings import LoadError, cut, duration_s, from_file, from_past
from controller.core.types import DeploymentId
from controller.replay.trace import Bins, Requests

runner = CliRunner()
CHEAP = ("--policies", "leadtime,static,clairvoyant", "--quick", "--workers", "1")


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """25 minutes of requests, one a row."""
    rng = np.random.default_rng(1)
    arrival_s = np.sort(rng.uniform(0, 1500, 3000))
    rows = [f"{at:.3f},{rng.integers(50, 400)},{rng.integers(50, 200)}" for at in arrival_s]
    path = tmp_path / "calls.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    return path


def backtest(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    cache = ("--cache", str(tmp_path / "cache"))
    result = runner.invoke(app, ["backtest", *arguments, *cache])
    return result.exit_code, result.output


def test_a_trace_at_two_leads_gives_a_table_json_and_a_report(tmp_path: Path, calls: Path) -> None:
    written, page = tmp_path / "out.json", tmp_path / "out.html"
    code, output = backtest(
        tmp_path,
        *("--trace", str(calls), "--lead", "20", "--lead", "60", "--replicas", "4", "--cap", "12"),
        *("--json", str(written), "--html", str(page), *CHEAP),
    )
    assert code == 0, output
    assert "what a faster start is worth" in output
    scenarios = json.loads(written.read_text())["scenarios"]
    assert [(s["trace"], s["lead_s"]) for s in scenarios] == [("calls", 20), ("calls", 60)]
    for scenario in scenarios:
        assert scenario["mean_replicas"] == 4
        assert {run["policy"] for run in scenario["runs"]} <= {"leadtime", "static", "clairvoyant"}
        assert scenario["best_rival"]["policy"] == "static"
        assert scenario["best_rival"]["attainment"] >= 0.99
        assert scenario["leadtime"]["gpu_hours"] > 0
        assert set(scenario["leadtime"]["violations"]) == {
            "unavoidable",
            "prefill_alone",
            "avoidable",
        }
    html = page.read_text()
    assert "GPU-hours against late requests" in html
    assert 'src="http' not in html


def test_the_second_time_nothing_is_played(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--trace", str(calls), "--replicas", "3", "--cap", "9", *CHEAP)
    first = backtest(tmp_path, *arguments)

    def refuse(*_: object) -> None:
        raise AssertionError("played again")

    monkeypatch.setattr("controller.replay.scenario.Plant", refuse)
    assert backtest(tmp_path, *arguments) == first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param((), "one of --trace FILE, --prometheus URL", id="no load"),
        pytest.param(("--trace", "none.csv"), "--trace: none.csv: no such file", id="no file"),
        pytest.param(
            ("--synthetic", "", "--policies", "ray,nobody"), "--policies: nobody", id="a policy"
        ),
        pytest.param(("--synthetic", "wave=3"), "--synthetic: 'wave=3'", id="a recipe's name"),
        pytest.param(("--synthetic", "daily=x"), "daily: 'x' is no number", id="a number"),
        pytest.param(("--synthetic", "daily=3"), "between 0 and 1", id="out of range"),
        pytest.param(("--synthetic", "days=1", "--lead", "0"), "--lead: 0 must", id="a lead of 0"),
        pytest.param(("--synthetic", "days=1", "--attainment", "1"), "--attainment", id="an SLO"),
        pytest.param(("--synthetic", "days=1", "--end", "soon"), "--end: 'soon'", id="a duration"),
        pytest.param(
            ("--synthetic", "days=1", "--start", "2h", "--end", "1h"), "later than", id="an order"
        ),
        pytest.param(
            ("--synthetic", "days=1", "--warm-up", "2d"), "leaves nothing", id="all warm-up"
        ),
        pytest.param(
            ("--synthetic", "days=1", "--replicas", "9", "--cap", "8"),
            "--cap 8",
            id="above the cap",
        ),
        pytest.param(("--synthetic", "days=1", "--engine", "gpu"), "--engine", id="an engine"),
        pytest.param(
            ("--synthetic", "days=1", "--json", "no/where.json"), "folder", id="no folder"
        ),
        pytest.param(("--prometheus", "localhost"), "http://", id="no URL"),
        pytest.param(
            ("--prometheus", "http://127.0.0.1:1"), "--prometheus: http://127", id="nobody there"
        ),
    ],
)
def test_wrong_input_ends_with_2_and_names_the_option(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, output = backtest(tmp_path, *arguments)
    assert code == 2
    assert said in " ".join(output.split())
    assert "Traceback" not in output


def test_other_columns_and_iso_times_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:05.9799600,3180,8\n"
    )
    names = recordings.column_names(
        ["arrival_s=TIMESTAMP", "prompt_tokens=ContextTokens", "output_tokens=GeneratedTokens"]
    )
    requests = from_file(path, names)
    assert isinstance(requests, Requests)
    assert requests.arrival_s.tolist() == pytest.approx([0, 2])
    assert requests.prompt_tokens.tolist() == [4808, 3180]


def test_bins_of_other_names_keep_their_gaps(tmp_path: Path) -> None:
    path = tmp_path / "bins.csv"
    path.write_text("when,count\n100,5\n160,6\n220,\n280,7\n")
    bins = from_file(path, {"t_s": "when", "requests": "count"})
    assert isinstance(bins, Bins)
    assert (bins.start_s.tolist(), bins.bin_s) == ([0, 60, 180], 60)
    assert bins.gaps == ((120, 180),)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        pytest.param({"arrival_s": "at"}, "no column at", id="not in the file"),
        pytest.param({"requests": "count"}, "neither arrival_s nor t_s", id="too few"),
        pytest.param({"t_s": "word", "requests": "count"}, "column t_s", id="no time"),
    ],
)
def test_what_is_wrong_with_columns_is_said(
    tmp_path: Path, columns: dict[str, str], said: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("word,count\nx,5\ny,6\n")
    with pytest.raises(LoadError, match=said):
        from_file(path, columns)


def test_durations_have_units() -> None:
    spelled = ("90", "1.5h", "2d", "15m")
    assert [duration_s("--end", text) for text in spelled] == [90, 5400, 172_800, 900]


def test_a_part_is_cut_out_and_stretched() -> None:
    starts_s = np.arange(0.0, 600.0, 60.0, dtype=np.float64)
    counts, unknown = np.arange(10, dtype=np.float64), np.full(10, np.nan)
    part = cut(Bins("b", 60.0, starts_s, counts, unknown, unknown), 120, 360, 2.0)
    assert isinstance(part, Bins)
    assert part.start_s.tolist() == [0, 120, 240, 360]
    assert part.requests.tolist() == [2, 3, 4, 5]
    assert part.bin_s == 120
    tokens = np.ones(3, np.int32)
    requests = cut(Requests(np.array([1.0, 5.0, 9.0]), tokens, tokens), 4, 10, 3.0)
    assert isinstance(requests, Requests)
    assert requests.arrival_s.tolist() == [3, 15]
    with pytest.raises(LoadError, match="--start"):
        cut(requests, 100, 200, 1.0)


def test_the_recipe_is_a_day_with_bursts_and_a_spike_at_its_hour() -> None:
    calm = recordings.synthetic("days=2,burst=0,daily=0.5,spike=3,at=9").bins().requests
    minute = np.arange(len(calm))
    assert calm[14 * 60] / calm[2 * 60] == pytest.approx(3)
    assert calm[9 * 60] / calm[9 * 60 - 1] == pytest.approx(3, rel=0.01)
    assert calm[minute < 1440].tolist() == pytest.approx(calm[minute >= 1440].tolist())
    wild = recordings.synthetic("days=2,burst=0.5,daily=0,spike=1").bins().requests
    assert wild.std() / wild.mean() == pytest.approx(0.5, rel=0.25)
    assert not np.array_equal(wild, recordings.synthetic("days=2,burst=.5,seed=2").bins().requests)


def test_history_of_each_deployment_becomes_a_load_with_its_gaps() -> None:
    rates = {
        DeploymentId("app", "llm"): np.array([1.0, 2.0, np.nan, 3.0]),
        DeploymentId("app", "idle"): np.zeros(4),
    }
    loads = from_past(Past(0.0, rates), 10.0)
    assert list(loads) == ["app/llm"]
    assert loads["app/llm"].requests.tolist() == [10, 20, 30]
    assert loads["app/llm"].gaps == ((20.0, 30.0),)


def test_own_history_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    past = Past(0.0, {DeploymentId("app", "llm"): rng.uniform(1, 2, 150)})
    monkeypatch.setattr(Backfill, "read", lambda *_: past)
    written = tmp_path / "out.json"
    code, output = backtest(
        tmp_path,
        *("--prometheus", "http://prometheus:9090", "--since", "25m", "--json", str(written)),
        *("--replicas", "3", "--cap", "9", *CHEAP),
    )
    assert code == 0, output
    (scenario,) = json.loads(written.read_text())["scenarios"]
    assert scenario["trace"] == "app/llm"
    assert scenario["mean_replicas"] == 3


def test_help_shows_the_options() -> None:
    shown = runner.invoke(app, ["backtest", "--help"]).output
    for option in ("--trace", "--lead", "--prometheus", "--synthetic", "--html", "--json"):
        assert option in shown
