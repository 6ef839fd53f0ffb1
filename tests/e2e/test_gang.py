"""Tensor-parallel gangs on a cluster that says it has eight GPUs: whole, or not at all."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.served import APPLICATION, DEPLOYMENT
from tests.e2e.world import World, wait_for, world

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

GPUS, GANG = 8, 4


def turned_down(live: World) -> list[dict[str, Any]]:
    """Decisions in which more was worth having than the GPUs hold."""
    return [
        decision
        for decision in live.decisions()
        for guard, before, after in decision["trail"]
        if guard == "within_free_resources" and before > after
    ]


def states(live: World) -> list[str]:
    deployment = live.cluster.applications()[APPLICATION]["deployments"][DEPLOYMENT]
    return sorted(replica["state"] for replica in deployment["replicas"])


def waiting_gangs(live: World) -> list[dict[str, Any]]:
    """Placement groups that wait for room, as Ray lists them."""
    answer = httpx.get(f"{live.cluster.dashboard_url}/api/v0/placement_groups?detail=1", timeout=10)
    groups = answer.json()["data"]["result"]["result"]
    return [group for group in groups if group["stats"]["scheduling_state"] == "NO_RESOURCES"]


def test_the_gang_that_fits_nowhere_is_not_asked_for(tmp_path: Path) -> None:
    """The ramp needs three replicas of four GPUs; eight hold two."""
    with world(tmp_path, "external", gpus=GPUS, gang=GANG) as live:
        live.play_load(seasons=1, seed=8)
        wait_for(lambda: bool(turned_down(live)), 75, "a plan that the GPUs limit")
        decision = turned_down(live)[-1]
        assert (decision["wanted"], decision["reason"]) == (2, "unschedulable")
        wait_for(lambda: states(live) == ["RUNNING", "RUNNING"], 30, "both gangs to run")
        assert not waiting_gangs(live)
        assert max(live.targets(-60, 60)) == 2

        # What it spares the cluster: a third one asked for by hand waits, holding nothing.
        live.kill_daemon()
        path = f"/api/v1/applications/{APPLICATION}/deployments/{DEPLOYMENT}/scale"
        url = f"{live.cluster.dashboard_url}{path}"
        httpx.post(url, json={"target_num_replicas": 3}, timeout=10).raise_for_status()
        wait_for(lambda: len(waiting_gangs(live)) == 1, 15, "the third gang to wait")
        [group] = waiting_gangs(live)
        assert [bundle["unit_resources"]["GPU"] for bundle in group["bundles"]] == [GANG]
        assert states(live) == ["RUNNING", "RUNNING", "STARTING"]
