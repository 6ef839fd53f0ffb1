"""The shipped files of graph and RAG: they name every stage, and what they say of each fits it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.app import placement
from serve_app.graph.settings import GraphSettings
from serve_app.rag.settings import BatchSettings, RagSettings
from serve_app.settings import AppSettings, parse

CONFIGS = Path(__file__).resolve().parents[2] / "serve_app/configs"
KINDS = pytest.mark.parametrize("kind", ["cpu", "gpu"])


def loaded(name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A file's args, and its deployments by name."""
    [one] = yaml.safe_load((CONFIGS / name).read_text())["applications"]
    return one["args"], {each["name"]: each for each in one["deployments"]}


def fits(deployment: dict[str, Any], settings: AppSettings) -> None:
    """As many requests as slots; the GPUs of `args`, unless the file takes them over rightly."""
    assert deployment["max_ongoing_requests"] == settings.engine.slots
    options = deployment.get("ray_actor_options", placement(settings)["ray_actor_options"])
    assert options.get("num_gpus", 0) == settings.gpus


@KINDS
def test_the_graph_file_fits_its_models(kind: str) -> None:
    args, deployments = loaded(f"graph-{kind}.yaml")
    settings = parse(GraphSettings, args, "test")
    versions = {f"LLM-{version.name}": version for version in settings.llm.versions}
    assert set(deployments) == {"Ingress", "Router", "Faq", "Small", *versions}
    for name, version in versions.items():
        fits(deployments[name], settings.version(version))
    assert settings.small is not None
    slots = [engine.slots for engine in settings.small.models.values()]
    at_once = settings.small.max_models_per_replica
    assert deployments["Small"]["max_ongoing_requests"] == sum(slots[:at_once])


@KINDS
def test_the_graph_file_splits_between_two_versions(kind: str) -> None:
    args, deployments = loaded(f"graph-{kind}.yaml")
    shares = parse(GraphSettings, args, "test").shares(deployments["Ingress"]["user_config"])
    assert shares == (("a", 0.9), ("b", 0.1))


@KINDS
def test_the_rag_file_fits_its_stages(kind: str) -> None:
    args, deployments = loaded(f"rag-{kind}.yaml")
    settings = parse(RagSettings, args, "test")
    assert set(deployments) == {"Ingress", "Embedder", "Search", "LLM"}
    fits(deployments["LLM"], settings.llm())
    batch = BatchSettings.model_validate(deployments["Embedder"]["user_config"])
    # A batch at work, another one gathering: the encoder never waits for requests.
    assert deployments["Embedder"]["max_ongoing_requests"] >= 2 * batch.max_batch_size
    cpus = deployments["Embedder"].get("ray_actor_options", {}).get("num_cpus")
    assert cpus in (None, settings.encoder.threads)


@pytest.mark.parametrize("app", ["graph", "rag"])
def test_gpus_are_for_the_gpu_file_alone(app: str) -> None:
    for kind, engine in (("cpu", "standin"), ("gpu", "vllm")):
        text = (CONFIGS / f"{app}-{kind}.yaml").read_text()
        assert ("gpus:" in text) == (kind == "gpu")
        assert set(yaml_values(yaml.safe_load(text), "kind")) == {engine}


def yaml_values(node: Any, key: str) -> list[Any]:
    """Every value that stands under a key, at any depth."""
    if isinstance(node, list):
        return [value for each in node for value in yaml_values(each, key)]
    if not isinstance(node, dict):
        return []
    own = [node[key]] if key in node else []
    return own + [value for each in node.values() for value in yaml_values(each, key)]
