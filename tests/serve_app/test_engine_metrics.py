"""The stand-in's metrics are a part of what real vLLM exports through Ray."""

import gzip
import re
from collections import defaultdict
from pathlib import Path

import pytest

from serve_app.engine_metrics import MetricSpec, metric_specs, token_bounds

RECORDED = Path(__file__).resolve().parents[3] / "shared/scrapes/ray-vllm-0.29.prom.gz"
RECORDED_MODEL_LEN = 256  # the page was taken from an engine with this context
RAYS_OWN_LABELS = {
    "Component",
    "NodeAddress",
    "SessionName",
    "Version",
    "WorkerId",
    "otel_scope_name",
    "otel_scope_schema_url",
    "otel_scope_version",
}

needs_recording = pytest.mark.skipif(
    not RECORDED.exists(), reason=f"no recorded page at {RECORDED}"
)


class Page:
    """Names with their label keys, and the bucket bounds of each histogram."""

    def __init__(self, text: str) -> None:
        self.labels: dict[str, set[str]] = defaultdict(set)
        self.bounds: dict[str, set[float]] = defaultdict(set)
        for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
            pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if (bound := pairs.pop("le", None)) not in (None, "+Inf"):
                self.bounds[name.removesuffix("_bucket")].add(float(bound))
            self.labels[name] |= pairs.keys() - RAYS_OWN_LABELS


def exported_name(spec: MetricSpec) -> str:
    """The name under which Ray puts it on its page."""
    suffix = {"gauge": "", "counter": "_total", "histogram": "_bucket"}[spec.kind]
    return f"ray_vllm_{spec.name}{suffix}"


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(gzip.decompress(RECORDED.read_bytes()).decode())


SPECS = metric_specs(RECORDED_MODEL_LEN)


@needs_recording
@pytest.mark.parametrize("name", [name for name in SPECS if name != "num_preemptions"])
def test_name_and_labels_are_those_of_real_vllm(page: Page, name: str) -> None:
    spec = SPECS[name]
    assert page.labels[exported_name(spec)] == set(spec.labels)


@needs_recording
@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.bounds])
def test_buckets_are_those_of_real_vllm(page: Page, name: str) -> None:
    assert page.bounds[f"ray_vllm_{name}"] == set(SPECS[name].bounds)


def test_lengths_are_cut_at_1_2_5_up_to_the_context() -> None:
    assert token_bounds(256) == (1, 2, 5, 10, 20, 50, 100, 200)
    assert token_bounds(500)[-1] == 500
