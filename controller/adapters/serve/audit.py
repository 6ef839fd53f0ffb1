"""What a production check asks of Ray beyond a tick: node totals, gangs, who is let in."""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from controller.adapters.serve import gangs as placement
from controller.adapters.serve.api import ServeApi, parsed
from controller.adapters.serve.gangs import Bundles
from controller.adapters.serve.view import total_resources
from controller.core.types import DeploymentId

PROBE_TIMEOUT_S = 3.0


class Nodes(NamedTuple):
    """Every node's resources in all, by node id, and the addresses of the head."""

    totals: Mapping[str, Mapping[str, float]]
    heads: tuple[str, ...]


async def nodes(api: ServeApi) -> Nodes:
    """Ray's nodes, free or not."""
    answer = await api.get("/nodes?view=summary")
    return parsed("nodes", lambda: Nodes(total_resources(answer), _heads(answer)))


async def gangs(api: ServeApi) -> dict[DeploymentId, Bundles]:
    """The placement group of one replica of each deployment that has them: the only place where
    those made in code (`ray.serve.llm`) show."""
    answer = await api.get(placement.PATH)
    return parsed("placement groups", lambda: placement.gangs(answer))


async def is_open(url: str, verify: ssl.SSLContext | bool = True) -> bool:
    """Whether Ray's dashboard at `url` answers a request that bears no token."""
    try:
        async with httpx.AsyncClient(
            timeout=PROBE_TIMEOUT_S, trust_env=False, verify=verify
        ) as client:
            answer = await client.get(f"{url}/api/version")
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return answer.status_code == 200 and "ray_version" in answer.text


def dashboards(url: str, addresses: Sequence[str]) -> tuple[str, ...]:
    """The URL itself and, as a dashboard may listen on more addresses than the one we use, the
    same port at each of `addresses`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    hosts = (f"[{address}]" if ":" in address else address for address in addresses)
    others = (f"{parts.scheme}://{host}:{port}" for host in hosts)
    return tuple(dict.fromkeys([url, *others]))


def _heads(answer: Any) -> tuple[str, ...]:
    return tuple(
        str(node["ip"])
        for node in answer["data"]["summary"]
        if node.get("ip") and (node.get("raylet") or {}).get("isHeadNode")
    )
