"""What a panel and a dashboard are, before Grafana's JSON is made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Kind = Literal["lines", "bars", "band", "stat", "states"]


class Proof(StrEnum):
    """Where a panel's queries are run against a real Prometheus and must return data."""

    LIVE = "live"  # end-to-end run: Ray, the stand-in engine, the daemon
    VLLM = "vllm"  # what only a real vLLM engine counts
    PAGE = "page"  # what rarely happens: the daemon's own page with that in it
    RECORDED = "recorded"  # what a busy GCS does not always export: recorded pages
    GPU = "gpu"  # what needs a GPU: recorded names, values invented


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL with Grafana's variables, and the legend of its series."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `unit` is Grafana's id of a unit; `alert` the runbook heading it leads to;
    `steps` are thresholds, colour by value from which it holds; `mappings` words for values."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    alert: str | None = None
    steps: Mapping[float, str] = field(default_factory=dict)
    mappings: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    width: int = 8
    least: float | None = 0
    most: float | None = None
    stacked: bool = False
    proof: Proof = Proof.LIVE


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A drop-down filled by a query; `single` allows one value and no "All"."""

    name: str
    label: str
    query: str
    regex: str = ""
    single: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; `uid` is what links and pushes know it by."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel in order."""
        return tuple(panel for row in self.rows for panel in row.panels)
