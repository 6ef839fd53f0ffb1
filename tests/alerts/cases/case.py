"""What a case is, and labels that many share; series in promtool's notation."""

from collections.abc import Mapping
from dataclasses import dataclass

LLM = 'application="chat",deployment="LLM"'
OURS = 'instance="leadtime:8199"'
BOTH = {"application": "chat", "deployment": "LLM"}
REPLICA = f'{LLM},replica="r1"'
SLO = f"leadtime_slo_ttft_seconds{{{LLM},{OURS}}}"
ATTAINMENT = f"leadtime_slo_attainment_ratio{{{LLM},{OURS}}}"
ROUTER_WAIT = "ray_serve_request_router_fulfillment_time_ms_bucket"
STARTS = "ray_serve_deployment_replica_starts_total"
NODE = 'ip="10.0.0.1",IsHeadNode="true"'
GPU = 'ip="10.0.0.3",GpuIndex="0",SessionName="s"'
DCGM = 'Hostname="node-3",gpu="0"'
LEAD = f"leadtime_lead_seconds{{{LLM},{OURS}}}"


@dataclass(frozen=True)
class Case:
    """Series, when to look, and what fires then: labels beside severity and layer, and the
    summary; no `fires` = silent."""

    alert: str
    name: str
    series: Mapping[str, str]
    at: str
    fires: tuple[Mapping[str, str], str] | None = None
