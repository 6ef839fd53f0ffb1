"""The three ways of scaling on a real cluster: what each sets, and what is left without us.

No Prometheus runs: the daemon is blind, and wants what its bounds say.
"""

import contextlib
import json
import secrets
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controller.demo.cluster import RayCluster
from controller.demo.processes import ProcessGroup, free_ports
from controller.inserve import policy
from tests.e2e.world import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(240)]

DEPLOYMENT = "Waiting"
TTL_S = 5.0
NATIVE_DELAY_S = 30.0
QUICK_S = 2.0
MOST = 6

# What users ship by runtime_env, in a package that the cluster has not: the one file under a name
# of their own, and an application whose code says its autoscaling.
SHIPPED_APP = """
import asyncio
from our_policies import LeadtimePolicy
from ray import serve
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy


class Waiting:
    async def __call__(self, request):
        await asyncio.sleep(float(request.query_params.get("s", "0")))
        return "done"


def build(args):
    delay_s = float(args["delay_s"])
    native = {"upscale_delay_s": delay_s, "downscale_delay_s": delay_s}
    policy = AutoscalingPolicy(
        policy_function=LeadtimePolicy, policy_kwargs={"url": args["url"], **native}
    )
    scaling = AutoscalingConfig(
        min_replicas=1, max_replicas=6, upscale_delay_s=0, downscale_delay_s=0, policy=policy
    )
    options = {"autoscaling_config": scaling, "ray_actor_options": {"num_cpus": 0.1}}
    return serve.deployment(Waiting).options(**options).bind()
"""


def application(name: str, **deployment: Any) -> dict[str, Any]:
    """One application of one deployment."""
    entry = {"name": DEPLOYMENT, "ray_actor_options": {"num_cpus": 0.1}, "max_ongoing_requests": 20}
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": "tests.e2e.waiting_app:app",
        "logging_config": {"enable_access_log": False},
        "deployments": [{**entry, **deployment}],
    }


def scaling(**changes: Any) -> dict[str, Any]:
    """An `autoscaling_config` for one replica a two requests."""
    return {
        "min_replicas": 1,
        "max_replicas": MOST,
        "target_ongoing_requests": 2,
        "look_back_period_s": 2,
        "metrics_interval_s": 0.5,
        "upscale_delay_s": QUICK_S,
        "downscale_delay_s": QUICK_S,
        **changes,
    }


def by_policy(url: str, delay_s: float, function: str) -> dict[str, Any]:
    """The same under our policy."""
    native = {"upscale_delay_s": delay_s, "downscale_delay_s": delay_s}
    chosen = {"policy_function": function, "policy_kwargs": {"url": url, **native}}
    return scaling(upscale_delay_s=0, downscale_delay_s=0, policy=chosen)


@dataclass
class Ways:
    """A cluster with an application for each way: `slow` and `quick` under our policy."""

    folder: Path
    group: ProcessGroup
    cluster: RayCluster
    token: str
    floors_port: int
    daemon_port: int
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        """Those with which a daemon may be read."""
        return {"Authorization": f"Bearer {self.token}"}

    def start(self, name: str, least: int, port: int | None = None) -> subprocess.Popen[bytes]:
        """A daemon that wants `least` replicas of each, with a journal named `name`."""
        port = port or self.daemon_port
        token_file = self.folder / "token"
        token_file.write_text(self.token)
        config = self.folder / f"{name}-{port}.yaml"
        entries = [
            {"application": app, "deployment": DEPLOYMENT} for app in ("quick", "floor", "ext")
        ]
        settings = {
            "mode": "active",
            "tick_s": 0.5,
            "slo": {"min_replicas": least, "max_replicas": MOST},
            "deployments": entries,
            "prometheus": {"url": f"http://127.0.0.1:{free_ports(1)[0]}", "timeout_s": 1},
            "serve": {"url": self.cluster.dashboard_url, "timeout_s": 3},
            "http": {"port": port, "read_token_file": str(token_file)},
            "policy": {"ttl_s": TTL_S},
            "journal": {"path": str(self.folder / f"{name}.db")},
            "log": {"format": "json", "level": "info"},
        }
        config.write_text(yaml.safe_dump(settings))
        command = [str(Path(sys.executable).with_name("leadtime")), "run", "--config", str(config)]
        self.started.append(self.group.start(f"{name}-{port}", command))
        return self.started[-1]

    def deployment(self, application: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.applications()[application]["deployments"][DEPLOYMENT]
        return found

    def target(self, application: str) -> int:
        return int(self.deployment(application)["target_num_replicas"])

    def running(self, application: str) -> set[str]:
        """Ids of the replicas that run."""
        members = self.deployment(application)["replicas"]
        return {member["replica_id"] for member in members if member["state"] == "RUNNING"}

    def await_target(self, application: str, target: int, within_s: float) -> float:
        """Seconds until Serve's target is so."""
        began_s = time.monotonic()
        what = f"a target of {target} for {application}"
        wait_for(lambda: self.target(application) == target, within_s, what)
        return time.monotonic() - began_s

    def await_running(self, application: str, count: int) -> set[str]:
        """Ids of the replicas, once so many run."""
        what = f"{count} replicas of {application}"
        wait_for(lambda: len(self.running(application)) == count, 40, what)
        return self.running(application)


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    folder = tmp_path_factory.mktemp("ways")
    shipped = folder / "shipped.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        archive.write(str(policy.__file__), "our_policies.py")
        archive.writestr("our_app.py", SHIPPED_APP)
    token = secrets.token_hex(16)
    floors_port, daemon_port = free_ports(2)
    group = ProcessGroup(folder / "logs")
    env = {policy.TOKEN_VARIABLE: token}
    with RayCluster(group, cpus=8, env=env) as cluster:
        quick = by_policy(
            f"http://127.0.0.1:{daemon_port}", QUICK_S, "controller.inserve.policy:LeadtimePolicy"
        )
        applications = [
            {
                **application("slow"),
                "deployments": [],
                "import_path": "our_app:build",
                "args": {"url": f"http://127.0.0.1:{floors_port}", "delay_s": NATIVE_DELAY_S},
                "runtime_env": {"working_dir": shipped.as_uri()},
            },
            application("quick", autoscaling_config=quick),
            application("floor", autoscaling_config=scaling()),
            {**application("ext", num_replicas=1), "external_scaler_enabled": True},
        ]
        cluster.deploy({"applications": applications})
        made = Ways(folder, group, cluster, token, floors_port, daemon_port)
        try:
            yield made
        finally:
            for process in made.started:
                process.kill()
                process.wait()


@dataclass
class Floors:
    """A daemon's answer, given by the test."""

    replicas: int = 1
    asked: list[dict[str, str]] = field(default_factory=list)
    answered: list[tuple[float, int]] = field(default_factory=list)


@contextlib.contextmanager
def floors_on(port: int) -> Iterator[Floors]:
    floors = Floors()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = {"path": self.path, "token": self.headers["authorization"] or ""}
            floors.asked.append(asked)
            floors.answered.append((time.monotonic(), floors.replicas))
            body = {"ttl_s": TTL_S, "age_s": 0, "floors": {"slow": {DEPLOYMENT: floors.replicas}}}
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield floors
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def requests(ways: Ways, application: str, count: int, seconds: float) -> Iterator[None]:
    """So many requests at once, each of them so long."""
    url = f"{ways.cluster.http_url}/{application}"
    with ThreadPoolExecutor(count) as pool:
        ran = [
            pool.submit(httpx.get, url, params={"s": seconds}, timeout=seconds + 30)
            for _ in range(count)
        ]
        yield
        assert [each.result().status_code for each in ran] == [200] * count


def test_a_raised_floor_is_the_target_within_a_second(ways: Ways) -> None:
    """Serve's own delay is 30 s. The policy's file came with the application alone."""
    with floors_on(ways.floors_port) as floors:
        wait_for(lambda: bool(floors.asked), 20, "the policy to ask")
        assert f"application=slow&deployment={DEPLOYMENT}" in floors.asked[0]["path"]
        assert floors.asked[0]["token"] == f"Bearer {ways.token}"
        first = ways.await_running("slow", 1)
        took_s = {}
        for replicas in (3, 2, 4):
            floors.replicas, raised_s = replicas, time.monotonic()
            took_s[replicas] = ways.await_target("slow", replicas, within_s=5)
            asked_s = next(at_s for at_s, floor in floors.answered if floor == replicas)
            print(f"floor {replicas}: asked for after {asked_s - raised_s:.2f} s", end=", ")
            print(f"target after {took_s[replicas]:.2f} s")
            # Processes that start take both cores, and Serve's controller its time for a round.
            steady = ways.await_running("slow", replicas)
        assert max(took_s[3], took_s[4]) <= 1.0
        assert first <= steady
        seen = set()
        for _ in range(30):
            seen |= {frozenset(ways.running("slow"))}
            time.sleep(0.1)
        assert seen == {frozenset(steady)}
    # The daemon is gone: one time to live, then Serve alone, which waits for its own delay.
    time.sleep(TTL_S + 2)
    assert ways.running("slow") == steady
    shown = json.dumps(ways.cluster.applications())
    assert ways.token not in shown


def test_three_ways_give_the_same_target(ways: Ways) -> None:
    """While Serve's own wish is below the plan; and no replica is restarted for it."""
    first = {name: ways.await_running(name, 1) for name in ("quick", "floor", "ext")}
    daemon = ways.start("three", least=3)
    for name, before in first.items():
        ways.await_target(name, 3, within_s=20)
        assert before <= ways.await_running(name, 3)
    url = f"http://127.0.0.1:{ways.daemon_port}/api/v1/status"
    status = httpx.get(url, headers=ways.headers, timeout=5).json()
    # A policy that was not read would be a problem said.
    assert not [problem for problem in status["problems"] if problem.startswith("floors:")]
    # Killed at the peak: the floor ends with its time to live, then Serve's own delay runs.
    daemon.kill()
    daemon.wait()
    died_s = time.monotonic()
    ways.await_target("quick", 1, within_s=TTL_S + QUICK_S + 5)
    assert time.monotonic() - died_s > QUICK_S
    # `floor` keeps min_replicas, `external` its target: neither falls below what was planned.
    assert (ways.target("floor"), ways.target("ext")) == (3, 3)


def test_killed_in_the_trough_serve_scales_by_itself(ways: Ways) -> None:
    daemon = ways.start("trough", least=1)
    wait_for(lambda: "quick" in floors_of(ways), 20, "a floor of quick")
    daemon.kill()
    daemon.wait()
    ways.await_target("quick", 1, within_s=TTL_S + QUICK_S + 5)
    with requests(ways, "quick", count=6, seconds=8):
        took_s = ways.await_target("quick", 3, within_s=15)
    assert took_s >= QUICK_S


def floors_of(ways: Ways) -> dict[str, Any]:
    """What the daemon offers; nothing while it does not answer."""
    url = f"http://127.0.0.1:{ways.daemon_port}/api/v1/floors"
    try:
        answer = httpx.get(url, headers=ways.headers, timeout=2)
    except httpx.HTTPError:
        return {}
    return dict(answer.json().get("floors", {}))


def test_of_two_daemons_one_leads_and_the_other_takes_over(ways: Ways) -> None:
    """A11: on one journal; the paused one wakes as a standby."""
    ports = free_ports(2)
    one = ways.start("pair", least=2, port=ports[0])
    ways.await_target("ext", 3, within_s=1)
    wait_for(lambda: leads(ways, ports[0]) is True, 20, "the first to lead")
    ways.start("pair", least=2, port=ports[1])
    wait_for(lambda: leads(ways, ports[1]) is False, 20, "the second to stand by")
    one.send_signal(signal.SIGSTOP)
    paused_s = time.monotonic()
    wait_for(lambda: leads(ways, ports[1]) is True, 15, "the second to lead")
    took_s = time.monotonic() - paused_s
    scale(ways, "ext", 1)
    ways.await_target("ext", 3, within_s=5)
    one.send_signal(signal.SIGCONT)
    wait_for(lambda: leads(ways, ports[0]) is False, 10, "the first to step back")
    assert leads(ways, ports[1]) is True
    print(f"paused leader followed after {took_s:.1f} s")


def scale(ways: Ways, application: str, replicas: int) -> None:
    """Write as someone else would."""
    path = f"/api/v1/applications/{application}/deployments/{DEPLOYMENT}/scale"
    url = ways.cluster.dashboard_url + path
    httpx.post(url, json={"target_num_replicas": replicas}, timeout=5).raise_for_status()


def leads(ways: Ways, port: int) -> bool | None:
    """Whether a daemon says that it leads; None while it does not answer."""
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        page = httpx.get(url, headers=ways.headers, timeout=1).text
    except httpx.HTTPError:
        return None
    shown = [line for line in page.splitlines() if line.startswith("leadtime_leader ")]
    return float(shown[0].split()[1]) == 1.0 if shown else None
