"""The status page in a real Chromium: layout, live update, accessibility, nothing from outside."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from controller.adapters.http import HttpServer, application
from controller.core.types import DeploymentId, Sample
from tests.adapters.test_page import EVIL, Shown
from tests.core.test_overrides import override

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


@dataclass
class Site:
    """A server in a thread of its own; all that touches the world runs there."""

    shown: Shown
    url: str
    loop: asyncio.AbstractEventLoop

    def step(self, ticks: int = 1, **changes: Any) -> None:
        done: Future[None] = Future()

        def run() -> None:
            self.shown.step(ticks, **changes)
            done.set_result(None)

        self.loop.call_soon_threadsafe(run)
        done.result(60)


def busy(path: Path, target: DeploymentId) -> Shown:
    """A deployment whose load has risen, boosted by an alert."""
    shown = Shown(path, target)
    for rate_rps, late, ticks in ((12.0, 0.001, 90), (22.0, 0.02, 60)):
        shown.live.rate_rps = rate_rps
        for _ in range(ticks):
            at_s = shown.live.at_s + 9
            rate, share = Sample(rate_rps, at_s), Sample(late, at_s)
            shown.step(first_tokens_rps={"": rate}, late_ratio={"": share})
    shown.overrides = [override("boost", replicas=2, until_s=shown.live.at_s + 301)]
    labels = target._asdict()
    shown.alerts = [
        {"name": "QueueWaitHigh", "firing": True, "starts_s": shown.live.at_s, "labels": labels}
        | {"received_s": shown.live.at_s, "summary": "first tokens wait 12 s", "fingerprint": "a"}
    ]
    return shown


@contextmanager
def served(shown: Shown) -> Iterator[Site]:
    """The page of a world, on a port of its own."""
    ready: Future[Site] = Future()
    ended = threading.Event()
    thread = threading.Thread(target=serve, args=(shown, ready, ended))
    thread.start()
    try:
        yield ready.result(30)
    finally:
        ended.set()
        thread.join(10)


def serve(shown: Shown, ready: Future[Site], ended: threading.Event) -> None:
    async def main() -> None:
        app = application(
            shown.board, lambda: b"", shown.journal.decisions, lambda: 0.0, shown.routes
        )
        server = HttpServer(app, "127.0.0.1", 0)
        port = await server.start()
        site = Site(shown, f"http://127.0.0.1:{port}/", asyncio.get_running_loop())
        ready.set_result(site)
        await asyncio.to_thread(ended.wait)
        await server.stop()

    asyncio.run(main())


@pytest.fixture(scope="module", params=["ordinary", "hostile"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A deployment with an ordinary name, and one whose name is an attack."""
    target = EVIL if request.param == "hostile" else DeploymentId("chat", "LLMServer:qwen-0_5b")
    with served(busy(tmp_path_factory.mktemp("page") / "leadtime.db", target)) as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed: make setup")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@dataclass
class Tab:
    """A page, what its console said, and what it asked for."""

    page: Page
    said: list[str]
    asked: list[str]


def opened(browser: Browser, url: str, size: dict[str, int], scheme: str = "light") -> Tab:
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    tab = Tab(context.new_page(), [], [])
    tab.page.on("console", lambda message: tab.said.append(message.text))
    tab.page.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.page.on("request", lambda request: tab.asked.append(request.url))
    tab.page.goto(url)
    return tab


def own(site: Site) -> str:
    return site.url + site.shown.own.removeprefix("/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_it_fits_and_anybody_can_read_it(
    site: Site, browser: Browser, size: dict[str, int], scheme: str
) -> None:
    for url in (site.url, own(site)):
        tab = opened(browser, url, size, scheme)
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"], "the page scrolls sideways"
        charts = tab.page.locator("svg")
        assert charts.count() == 2
        for at in range(2):
            box = charts.nth(at).bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size["width"]
            assert box["height"] > 60
        found = Axe().run(tab.page)
        assert found.violations_count == 0, found.generate_report()
        assert tab.said == []
        assert all(asked.startswith(site.url) or asked == "data:," for asked in tab.asked)
        tab.page.context.close()


def test_the_numbers_stand_beside_the_charts_on_a_desk_and_above_them_on_a_phone(
    site: Site, browser: Browser
) -> None:
    places = {}
    for name, size in (("phone", PHONE), ("desk", DESK)):
        tab = opened(browser, site.url, size)
        numbers = tab.page.locator("#numbers-1").bounding_box()
        charts = tab.page.locator("#charts-1").bounding_box()
        assert numbers is not None
        assert charts is not None
        places[name] = numbers, charts
        tab.page.context.close()
    numbers, charts = places["phone"]
    assert charts["y"] >= numbers["y"] + numbers["height"]
    numbers, charts = places["desk"]
    assert charts["x"] >= numbers["x"] + numbers["width"]


def test_it_keeps_itself_current_without_flicker(site: Site, browser: Browser) -> None:
    """What did not change stays the same node, focus and scroll stay where they are."""
    tab = opened(browser, site.url, DESK)
    page = tab.page
    page.evaluate(
        """() => {
          document.querySelector("h2 a").focus();
          document.querySelector("#alerts li").seen = "yes";
          document.querySelector(".card").seen = "yes";
          window.scrollTo(0, 120);
        }"""
    )
    before = page.locator("#numbers-1").inner_text()
    site.step(3, arrivals=None)
    page.wait_for_function(
        "before => document.querySelector('#numbers-1').innerText !== before", arg=before
    )
    assert "blind" in page.locator("#numbers-1").inner_text()
    page.wait_for_function("() => document.querySelector('#state').innerText.includes('Not ready')")
    assert page.title() == "Leadtime: not ready"
    kept = page.evaluate(
        """() => [
          document.activeElement === document.querySelector("h2 a"),
          document.querySelector("#alerts li").seen,
          document.querySelector(".card").seen,
          window.scrollY,
        ]"""
    )
    assert kept == [True, "yes", "yes", 120]
    assert tab.said == []
    site.step(10)
    page.wait_for_function("() => document.querySelector('#state').innerText.includes('Ready.')")
    page.context.close()


def test_it_says_when_the_daemon_no_longer_answers(site: Site, browser: Browser) -> None:
    tab = opened(browser, site.url, PHONE)
    tab.page.route("**/*", lambda route: route.abort())
    tab.page.get_by_text("what is shown is old").wait_for(timeout=15_000)
    tab.page.unroute("**/*")
    tab.page.wait_for_function("() => document.querySelector('#connection').textContent === ''")
    tab.page.context.close()


def test_the_keyboard_leads_to_the_page_of_a_deployment(site: Site, browser: Browser) -> None:
    tab = opened(browser, site.url, DESK)
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    for _ in range(3):
        if tab.page.evaluate("document.activeElement.closest('h2') !== null"):
            break
        tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/deployment?**")
    title = tab.page.locator("h1").inner_text()
    assert title == str(site.shown.target)
    assert tab.page.evaluate("document.querySelectorAll('img, main script').length") == 0
    assert tab.said == []
    tab.page.context.close()
