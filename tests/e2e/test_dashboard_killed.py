"""The dashboard is killed for good; nothing restarts it on a bare head."""

import math
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from serve_app.load_results import LoadResult
from tests.e2e.served import (
    APPLICATION,
    DEPLOYMENT,
    MAX_REPLICAS,
    NATIVE,
    NEEDED,
    QUIET_RPS,
    RAMP_AT_S,
    RAMP_ENDS_S,
    SEASON_S,
)
from tests.e2e.world import World, wait_for, world

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

KILLED_AT_S = 6.0
SLACK_S = 3.0
"""Scraped each second, reported each second, looked at by Serve each second."""


def shown(live: World, metric: str, start_s: float, end_s: float) -> dict[float, float]:
    """What Serve's controller reports of the deployment, by second of the schedule."""
    ahead_s = round(live.wall_zero_s)
    selector = f'max({metric}{{application="{APPLICATION}",deployment="{DEPLOYMENT}"}})'
    series = live.metrics.over(selector, ahead_s + start_s, ahead_s + end_s)
    return {at_s - ahead_s: float(value) for row in series for at_s, value in row["values"]}


def replicas(live: World) -> Iterator[psutil.Process]:
    """The processes that serve the model."""
    for process in live.group.members():
        if f"ServeReplica:{APPLICATION}:{DEPLOYMENT}" in " ".join(process.cmdline()):
            yield process


def assert_never_below_native(
    targets: Mapping[float, float], wishes: Mapping[float, float]
) -> None:
    """Whatever Serve's own policy has wished for through its delay, it has."""
    for at_s, target in targets.items():
        begin_s = at_s - NATIVE["upscale_delay_s"] - SLACK_S
        lately = [wish for wished_s, wish in wishes.items() if begin_s <= wished_s <= at_s]
        if len(lately) > SLACK_S:
            assert target >= min(*lately, MAX_REPLICAS), (at_s, target, lately)


def test_the_dashboard_is_killed_for_good(tmp_path: Path) -> None:
    """Traffic is untouched, what Prometheus knows is scraped on, the daemon holds and says
    `serve_unreachable`; and Serve, with our policy, scales by itself from the floor held up."""
    with world(tmp_path, "policy", bare=True) as live:
        live.play_load(seasons=1, seed=11)
        live.wait_until(KILLED_AT_S)
        before = set(replicas(live))
        killed = live.dashboard()
        assert killed
        for process in killed:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(killed, timeout=5)
        wait_for(lambda: live.reason() == "serve_unreachable", 30, "serve_unreachable")
        since_s = live.decisions()[-1]["at_s"]
        live.wait_until(SEASON_S)
        wait_for(live.requests.exists, 30, "the load to end")

        assert not live.dashboard()
        assert all(process.is_running() for process in before)
        assert_held(live, since_s)
        targets = shown(live, "ray_serve_autoscaling_target_replicas", KILLED_AT_S, SEASON_S)
        inside = shown(live, "ray_serve_autoscaling_total_requests", KILLED_AT_S, SEASON_S)
        wishes = {
            at_s: math.ceil(requests / NATIVE["target_ongoing_requests"])
            for at_s, requests in inside.items()
        }
        # Scraping went on to the end, by targets that nothing lists any more.
        assert max(targets) > SEASON_S - 2 * SLACK_S
        assert len(targets) > 0.8 * (SEASON_S - KILLED_AT_S)
        assert_never_below_native(targets, wishes)
        busy = [wish for at_s, wish in wishes.items() if RAMP_AT_S + 5 <= at_s < RAMP_ENDS_S]
        assert max(busy) >= NEEDED, "the ramp asked nothing of Serve: the check above is empty"
        played = LoadResult.read_csv(live.requests)
        assert len(played) >= QUIET_RPS * SEASON_S
        assert set(played.error) == {""}


def assert_held(live: World, since_s: float) -> None:
    """One reason, one number, and arrivals that are seen all the while."""
    held: list[dict[str, Any]] = [d for d in live.decisions() if d["at_s"] >= since_s]
    assert held[-1]["at_s"] - since_s >= SEASON_S / 2
    assert {decision["reason"] for decision in held} == {"serve_unreachable"}
    assert len({decision["wanted"] for decision in held}) == 1
    seen = [decision["inputs"]["signals"]["arrivals"]["trust"] for decision in held]
    assert seen.count("present") >= 0.9 * len(seen), seen
