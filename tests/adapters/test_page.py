"""The status page without a browser: what it says, what it escapes, what it forbids."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from controller.adapters.http import Board
from controller.adapters.page.chart import HEIGHT, WIDTH, load_chart, nice, replica_chart
from controller.adapters.page.history import SPAN_S, History, Point, changes
from controller.adapters.page.routes import View, routes
from controller.adapters.store import Journal
from controller.core.choosing import DEFAULT, LAST_VALUE, Trial
from controller.core.types import DeploymentId, Outcome, Sample, Tick
from tests.core.test_explain import promise
from tests.core.test_overrides import override
from tests.core.worlds import TARGET, World, planner

EVIL = DeploymentId("<script>alert(1)</script>", "a/b\"'><img src=x onerror=alert(2)>")


class Shown:
    """A world, its board and journal, and the page over them."""

    def __init__(self, path: Path, target: DeploymentId = TARGET) -> None:
        self.live, self.planner = World.with_replicas(4, rate_rps=12), planner()
        self.planner.target = target
        self.target = target
        self.journal = Journal(path, 86_400.0)
        self.board = Board("active", 60.0)
        self.alerts: list[dict[str, Any]] = []
        self.overrides: Sequence[Any] = ()
        self.restart()

    def restart(self) -> None:
        """The page as a new process has it."""
        self.history = History(self.journal.decisions)
        view = View(
            lambda: self.board.status(self.live.at_s + 1),
            self.history,
            self.journal.decisions,
            lambda: self.alerts,
            lambda _: self.overrides,
            lambda _: promise(self.planner),
            lambda: self.live.at_s + 1,
        )
        self.routes = routes(view)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(Starlette(routes=self.routes)),
            base_url="http://leadtime",
        )

    def step(self, ticks: int = 1, failures: tuple[str, ...] = (), **changes: Any) -> None:
        for _ in range(ticks):
            decision = self.live.step(self.planner, **changes)
            outcome = Outcome(decision.action, True, "")
            tick = Tick(self.live.at_s, ((decision, outcome),), {}, failures)
            for recorder in (self.board, self.journal, self.history):
                recorder.record(tick)

    async def get(self, path: str = "/", status: int = 200) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == status
        return answer.text

    @property
    def own(self) -> str:
        """The path of the deployment's page."""
        named = [f"{key}={quote(value, '')}" for key, value in self.target._asdict().items()]
        return "/deployment?" + "&".join(named)


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[Shown]:
    yield Shown(tmp_path / "leadtime.db")


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))


async def test_before_the_first_tick_it_says_so(shown: Shown) -> None:
    text = text_of(await shown.get())
    assert "Not ready. Nothing shrinks until it is. no tick yet" in text
    assert "No deployment has been found" in text


async def test_it_says_the_numbers_and_the_reason_in_words(shown: Shown) -> None:
    shown.step(60)
    text = text_of(await shown.get())
    latest = shown.board.status(0.0)["deployments"][0]
    assert f"ready {latest['ready']} requested {latest['requested']}" in text
    assert latest["reason"] in text
    assert "Decisions are carried out." in text
    assert "expected in" in text
    assert "not measured" in text


async def test_the_slo_and_the_budget_are_those_of_the_points(shown: Shown) -> None:
    for _ in range(30):
        seen_s = shown.live.at_s + 9
        late, rate = Sample(0.005, seen_s), Sample(12.0, seen_s)
        shown.step(late_ratio={"": late}, first_tokens_rps={"": rate})
    slo = shown.history.slo(TARGET, 0.99)
    assert slo.attained == pytest.approx(0.995)
    assert slo.spent == pytest.approx(0.5)
    text = text_of(await shown.get())
    assert "99.50 % (SLO 99.0 %)" in text
    assert "error budget spent 50 %" in text


async def test_what_cannot_be_read_is_said(shown: Shown) -> None:
    shown.step(5, failures=("prometheus: refused",))
    assert "Not ready. Nothing shrinks until it is. prometheus: refused" in text_of(
        await shown.get()
    )


async def test_alerts_and_overrides_are_said(shown: Shown) -> None:
    shown.step(5)
    labels = {"application": "app", "deployment": "llm"}
    alert = {"name": "QueueWaitHigh", "firing": True, "starts_s": 1e6, "received_s": 1e6}
    shown.alerts = [{**alert, "labels": labels, "summary": "12 s wait", "fingerprint": "ab"}]
    shown.overrides = [override("boost", replicas=2, until_s=shown.live.at_s + 301)]
    for path in ("/", shown.own):
        text = text_of(await shown.get(path))
        assert "QueueWaitHigh firing since 13:46:40, app/llm: 12 s wait" in text
        assert "boost HighQueueWait, 5 min left" in text


async def test_the_page_of_a_deployment_says_guards_inputs_and_what_would_change(
    shown: Shown,
) -> None:
    shown.step(90)
    text = text_of(await shown.get(shown.own))
    assert "within_bounds within the configured minimum and maximum" in text
    assert "arrivals present" in text
    assert "times the expected load" in text


async def test_the_page_tells_the_model_in_force_and_what_others_came_to(shown: Shown) -> None:
    shown.step(60)
    assert "the default, until the past has been replayed" in text_of(await shown.get(shown.own))
    shown.planner.weigh([Trial(DEFAULT, 100.0, 0.004), Trial(LAST_VALUE, 80.0, 0.005)])
    shown.planner.keep("the process died")
    shown.step(1)
    text = text_of(await shown.get(shown.own))
    assert "Model last_value at 1.0 times the usual price of a late request, chosen" in text
    assert "(the process died)" in text
    assert "location_scale 1.0 100.0 0.40 %" in text


async def test_names_from_the_cluster_are_escaped(tmp_path: Path) -> None:
    shown = Shown(tmp_path / "leadtime.db", EVIL)
    shown.step(3)
    shown.alerts = [
        {
            "name": EVIL.application,
            "firing": True,
            "starts_s": 1e6,
            "received_s": 1e6,
            "labels": {"deployment": EVIL.deployment, "application": EVIL.application},
            "summary": EVIL.deployment,
            "fingerprint": "ab",
        }
    ]
    for path in ("/", shown.own):
        html = await shown.get(path)
        assert "<script>alert" not in html
        assert "<img" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    (link,) = re.findall(r'<h2 id="name-1"><a href="([^"]*)"', await shown.get())
    assert "Guards in order" in await shown.get("/" + link.replace("&amp;", "&"))


async def test_it_forbids_everything_but_its_own_files(shown: Shown) -> None:
    for path in ("/", "/page.css", "/page.js", "/deployment"):
        answer = await shown.client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    html = await shown.get()
    assert re.findall(r'(?:src|href)="(?:https?:)?//', html) == []
    assert " style=" not in html
    for method in ("POST", "PUT", "DELETE"):
        assert (await shown.client.request(method, "/")).status_code == 405


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/deployment?application=app&deployment=<b>", 404, "no deployment app/&lt;b&gt;"),
        ("/deployment?application=app", 400, "must be said"),
        ("/deployment?application=app&deployment=llm&x=1", 400, "x: no such parameter"),
        ("/api/v1/explain?application=app&deployment=nope", 404, "no decision on app/nope"),
        ("/api/v1/explain?application=app&deployment=llm&at_s=now", 400, "must be a number"),
        ("/api/v1/explain?application=app&deployment=llm&at_s=5", 404, "no decision"),
        ("/api/v1/explain", 400, "must be said"),
    ],
)
async def test_a_wrong_question_is_answered_with_what_is_wrong(
    shown: Shown, path: str, status: int, said: str
) -> None:
    shown.step(2)
    assert said in await shown.get(path, status)


async def test_explain_answers_for_now_and_for_then(shown: Shown) -> None:
    shown.step(30)
    asked = {"application": "app", "deployment": "llm"}
    now = (await shown.client.get("/api/v1/explain", params=asked)).json()
    assert (now["at_s"], now["age_s"]) == (shown.live.at_s, 1.0)
    then_s = shown.live.at_s - 95
    then = (await shown.client.get("/api/v1/explain", params={**asked, "at_s": then_s})).json()
    assert (then["at_s"], then["age_s"]) == (shown.live.at_s - 100, 5.0)


async def test_after_a_restart_the_last_hour_is_there(shown: Shown) -> None:
    shown.step(400)
    before = shown.history.points(TARGET)
    shown.restart()
    shown.step(1)
    after = shown.history.points(TARGET)
    assert after[-1].at_s - after[0].at_s == SPAN_S
    assert after[:-1] == before[1:]


def a_point(at_s: float, **changes: Any) -> Point:
    values: dict[str, Any] = {
        "at_s": at_s,
        "wanted": 3,
        "requested": 3,
        "ready": 3,
        "reason": "steady",
        "action": None,
        "applied": True,
        "detail": "",
        "demand_rps": 5.0,
        "late_ratio": 0.0,
        "first_tokens_rps": 5.0,
        "band_at_s": at_s + 60,
        "band": (4.0, 7.0, 9.0),
    }
    return Point(**{**values, **changes})


def test_no_line_is_drawn_over_what_is_not_known() -> None:
    points = [a_point(s, demand_rps=None if 20 <= s < 40 else 5.0) for s in range(0, 60, 5)]
    chart = load_chart(points, 60.0, 60.0)
    assert len(chart.lines) == 2
    nothing = load_chart([a_point(5.0, demand_rps=None, band=None)], 60.0, 60.0)
    assert (nothing.lines, nothing.band) == ((), "")
    assert "not known" in nothing.summary


def test_the_band_stands_at_the_time_it_was_made_for() -> None:
    points = [a_point(float(s)) for s in range(0, 600, 10)]
    chart = load_chart(points, 600.0, 60.0)
    assert chart.lead is not None
    assert chart.lead > chart.now
    right = max(float(x) for x in re.findall(r"[ML]([\d.]+) ", chart.band))
    assert right == pytest.approx(chart.lead, abs=12)


def test_changes_are_the_newest_first() -> None:
    points = [a_point(0), a_point(1), a_point(2, wanted=5, action=5), a_point(3, reason="hold")]
    assert [p.at_s for p in changes(points, 8)] == [3, 2]
    assert changes([], 8) == []


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e6), st.one_of(st.none(), st.floats(0, 1e9)), st.integers(0, 10_000)
        ),
        max_size=40,
    ),
    st.floats(1, 3600),
)
def test_whatever_is_seen_is_drawn_inside_the_box(
    seen: list[tuple[float, float | None, int]], lead_s: float
) -> None:
    points = [
        a_point(at_s, demand_rps=rps, wanted=count, ready=None, band=(0.0, rps or 1.0, 1e9))
        for at_s, rps, count in sorted(seen, key=lambda each: each[0])
    ]
    now_s = points[-1].at_s if points else 0.0
    for chart in (load_chart(points, now_s, lead_s), replica_chart(points, now_s)):
        path = " ".join([chart.band, *(line.path for line in chart.lines)])
        assert "nan" not in path
        assert "inf" not in path
        for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path):
            assert 0 <= float(x) <= WIDTH
            assert 0 <= float(y) <= HEIGHT


@pytest.mark.parametrize(
    ("top", "marked"), [(0.0004, 0.001), (0.9, 1), (1, 1), (3, 4), (7.2, 8), (41, 50), (1e6, 1e6)]
)
def test_the_axis_ends_at_a_round_number(top: float, marked: float) -> None:
    assert nice(top) == pytest.approx(marked)
