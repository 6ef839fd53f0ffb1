"""From a broken SLO to more replicas and back: Prometheus fires, Alertmanager groups and calls
Leadtime, a boost becomes ready replicas and ends with the alert, and a sink that was down for a
minute gets the event of it. The rules are those of production at a sixtieth.
"""

import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from cloudevents.v1.http import from_http
from standardwebhooks.webhooks import Webhook

from alerts.generate import render_alertmanager, render_rules
from controller.demo.cluster import RayCluster
from controller.demo.history import write_blocks
from controller.demo.metrics_server import PrometheusServer
from controller.demo.model import Past
from controller.demo.processes import ProcessGroup, free_ports
from controller.loop import wall_clock_s
from tests.alerts.servers import AlertmanagerServer
from tests.e2e.served import (
    APPLICATION,
    DEPLOYMENT,
    OUTPUT_TOKENS,
    SEASON_S,
    applications,
    daemon_settings,
)
from tests.e2e.world import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        shutil.which("prometheus-alertmanager") is None,
        reason="prometheus-alertmanager is not installed: make setup",
    ),
]

SCALE = 60
TOKEN = "alertmanager-token-of-the-test"
SECRET = "whsec_bGVhZHRpbWUtdGVzdC1rZXktMDEyMzQ1Njc4OQ=="
DOWN_S = 60.0
SEASONS = 8
QUIET_RPS, BURST_RPS = 1.0, 5.0
BURST_AT_S, BURST_ENDS_S, ENDS_S = 8.0, 22.0, 180.0
MAX_REPLICAS = 12
REACTION, EXTRA = "slo", 2
PAGES = frozenset({"SloBurnFast", "SloBurnHigh"})


@dataclass
class Sink:
    """Takes what is posted, once it listens."""

    port: int
    got: list[tuple[float, dict[str, str], bytes]] = field(default_factory=list)

    @contextmanager
    def listening(self) -> Iterator[None]:
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                got.append((wall_clock_s(), headers, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *_: Any) -> None:
                """Not said."""

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)

    def events(self) -> list[dict[str, Any]]:
        """What came, each verified; `waited_s` from the event to its arrival."""
        found = []
        for at_s, headers, body in self.got:
            Webhook(SECRET).verify(body, headers)
            event = from_http(headers, body)
            attributes = dict(event.get_attributes())
            data: dict[str, Any] = event.get_data()  # type: ignore[assignment]
            made_s = float(attributes["id"].rsplit("/", 1)[1])
            found.append({**attributes, "data": data, "waited_s": at_s - made_s})
        return found


@dataclass
class Alerted:
    """Everything that runs."""

    group: ProcessGroup
    metrics: PrometheusServer
    alertmanager: AlertmanagerServer
    sink: Sink
    url: str

    def get(self, path: str, **parameters: Any) -> Any:
        answer = httpx.get(self.url + path, params=parameters, timeout=5)
        answer.raise_for_status()
        return answer.json()

    def decisions(self) -> list[dict[str, Any]]:
        """On the deployment, oldest first."""
        found = self.get("/api/v1/decisions", limit=1000)["decisions"]
        return [d for d in reversed(found) if d["deployment"] == DEPLOYMENT]

    def boosts(self) -> list[tuple[dict[str, Any], int, int]]:
        """Decisions that a boost changed, with the number before and after it."""
        return [
            (decision, step[1], step[2])
            for decision in self.decisions()
            for step in decision["trail"]
            if step[0] == "boosted_on_request"
        ]

    def boost_events(self) -> list[dict[str, Any]]:
        """What the sink got of scalings whose reason was the boost."""
        return [e for e in self.sink.events() if e["data"]["reason"] == "boost"]

    def firing(self) -> set[str]:
        """Alerts on the deployment that fire, as Prometheus has them."""
        answer = httpx.get(f"{self.metrics.url}/api/v1/alerts", timeout=5).json()
        return {
            alert["labels"]["alertname"]
            for alert in answer["data"]["alerts"]
            if alert["state"] == "firing" and alert["labels"].get("deployment") == DEPLOYMENT
        }

    def metric(self, name: str) -> float:
        """Sum of a metric of ours over its series whose text begins so; 0 where there is none."""
        lines = httpx.get(f"{self.url}/metrics", timeout=5).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def settings(folder: Path, cluster: RayCluster, prometheus_url: str, ports: list[int]) -> Any:
    """Alerts of the SLO boost, and what is scaled is told to the sink."""
    said = daemon_settings(folder, cluster, prometheus_url, ports[0], {APPLICATION: "external"})
    said["deployments"][0]["max_replicas"] = MAX_REPLICAS
    said["webhooks"] = {"token_file": str(folder / "token")}
    reaction = {"name": REACTION, "match": {"layer": "slo", "severity": "page"}}
    said["reactions"] = [{**reaction, "effect": "boost", "replicas": EXTRA, "ttl_s": 120}]
    sink = {"name": "ops", "url": f"http://127.0.0.1:{ports[1]}/events", "secret": SECRET}
    said["sinks"] = [{**sink, "kinds": ["scaled", "slo_at_risk"], "timeout_s": 2}]
    return said


def quiet_season(seed: int) -> Past:
    """A season without the burst: nothing that was seen foretells it."""
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.poisson(QUIET_RPS, SEASON_S))
    done = np.concatenate([[0], arrived[:-1]])
    running = np.zeros((SEASON_S, MAX_REPLICAS))
    running[:, 0] = arrived - done
    return Past(arrived.astype(float), done.astype(float), running)


@contextmanager
def alerted(folder: Path) -> Iterator[Alerted]:
    """A cluster whose Prometheus and Alertmanager know production's rules, and the daemon."""
    group = ProcessGroup(folder / "logs")
    ports = free_ports(3)
    (folder / "token").write_text(TOKEN)
    rules = folder / "rules.yml"
    rules.write_text(render_rules(SCALE))
    url = f"http://127.0.0.1:{ports[0]}"
    nobody = f"http://127.0.0.1:{ports[2]}"
    hooks = {name: f"{nobody}/{name}" for name in ("pager", "tickets")}
    where = {**hooks, "leadtime": f"{url}/webhooks/alertmanager"}
    text = render_alertmanager(SCALE, token_file=str(folder / "token"), **where)
    with ExitStack() as ends:
        cluster = ends.enter_context(RayCluster(group, cpus=8))
        cluster.deploy(applications(external=True))
        alertmanager = AlertmanagerServer(group, folder / "alertmanager", text)
        alertmanager.start()
        metrics = PrometheusServer(
            group,
            folder / "prometheus",
            cluster.service_discovery_file,
            targets={"leadtime": f"127.0.0.1:{ports[0]}"},
            rule_files=[rules],
            alertmanagers=[alertmanager.address],
        )
        pasts = [quiet_season(seed) for seed in range(SEASONS)]
        now_s = wall_clock_s()
        write_blocks(metrics.data, pasts, float(int(now_s)), now_s, (APPLICATION, DEPLOYMENT))
        metrics.start()
        body = {"model": "standin", "messages": [{"role": "user", "content": "hello"}]}
        httpx.post(f"{cluster.http_url}/v1/chat/completions", json=body, timeout=30)
        config = folder / "leadtime.yaml"
        config.write_text(yaml.safe_dump(settings(folder, cluster, metrics.url, ports)))
        leadtime = Path(sys.executable).with_name("leadtime")
        group.start("leadtime", [str(leadtime), "run", "--config", str(config)])
        live = Alerted(group, metrics, alertmanager, Sink(ports[1]), url)
        wait_for(lambda: _answers(live), 30, "the daemon")
        play(group, cluster, folder)
        yield live


def _answers(live: Alerted) -> bool:
    try:
        return httpx.get(f"{live.url}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def play(group: ProcessGroup, cluster: RayCluster, folder: Path) -> None:
    """Quiet, then a step that nobody could foresee, then quiet."""
    rate = [
        (0.0, QUIET_RPS),
        (BURST_AT_S, QUIET_RPS),
        (BURST_AT_S, BURST_RPS),
        (BURST_ENDS_S, BURST_RPS),
        (BURST_ENDS_S, QUIET_RPS),
        (ENDS_S, QUIET_RPS),
    ]
    recipe = folder / "recipe.json"
    lengths = {"prompt_mean": 20, "prompt_cv": 0, "output_mean": OUTPUT_TOKENS, "output_cv": 0}
    recipe.write_text(json.dumps({"rate": rate, **lengths}))
    command = [sys.executable, "-m", "serve_app.loadgen", "--url", cluster.http_url]
    command += ["--recipe", str(recipe), "--seed", "3", "--model", "standin"]
    command += ["--out", str(folder / "requests.csv"), "--progress", "none"]
    group.start("load", command)


def test_a_broken_slo_boosts_until_it_is_mended_and_the_event_arrives_late(tmp_path: Path) -> None:
    with alerted(tmp_path) as live:
        began_s = time.monotonic()
        wait_for(lambda: "SloBurnFast" in live.firing(), 60, "Prometheus to fire SloBurnFast")
        wait_for(lambda: bool(live.boosts()), 15, "a boost; " + live.group.log("leadtime", 3000))
        wait_for(
            lambda: any(d["ready"] >= after > before for d, before, after in live.boosts()),
            60,
            "the boost's replicas to be ready",
        )
        decision, before, after = live.boosts()[0]
        assert after == before + EXTRA
        assert decision["timers"][-1][0] == "override boost"
        assert "reaction slo" in decision["timers"][-1][2]
        assert "SloBurn" in httpx.get(live.url, timeout=5).text
        asked = {"application": APPLICATION, "deployment": DEPLOYMENT}
        shown = live.get("/api/v1/explain", at_s=decision["at_s"], **asked)
        steps = {step["guard"]: (step["before"], step["after"]) for step in shown["guards"]}
        assert steps["boosted_on_request"] == (before, after)

        time.sleep(max(0.0, DOWN_S - (time.monotonic() - began_s)))
        assert live.metric('leadtime_events_total{outcome="failed",sink="ops"}') > 3
        with live.sink.listening():
            wait_for(lambda: bool(live.boost_events()), 70, "the event of the boost")
            wait_for(lambda: not live.firing() & PAGES, 90, "the alerts to resolve")
            wait_for(
                lambda: live.decisions()[-1]["at_s"] > live.boosts()[-1][0]["at_s"],
                20,
                "Alertmanager to say so and the boost to end",
            )
            assert live.metric('leadtime_alerts_total{verdict="resolved"}') > 0
            most = max(after for _, _, after in live.boosts())
            wait_for(
                lambda: live.decisions()[-1]["requested"] < most, 40, "replicas to be given back"
            )
            wait_for(
                lambda: live.metric('leadtime_events_waiting{sink="ops"}') == 0, 70, "all events"
            )
        event = max(live.boost_events(), key=lambda each: float(each["waited_s"]))
        assert event["type"] == "leadtime.scaled"
        assert event["subject"] == f"{APPLICATION}/{DEPLOYMENT}"
        assert event["waited_s"] > 20
        kinds = {event["type"] for event in live.sink.events()}
        assert kinds == {"leadtime.scaled", "leadtime.slo_at_risk"}
        assert live.metric('leadtime_events_total{outcome="dead"') == 0
        assert live.metric("leadtime_tick_errors_total") == 0
