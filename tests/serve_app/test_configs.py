"""The shipped configs: Serve's own schema takes them, and they keep what Leadtime asks for."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve import Application
from ray.serve.schema import ServeDeploySchema

from serve_app.app import build, placement
from serve_app.settings import InvalidArgs, parse_args

CONFIGS = Path(__file__).resolve().parents[2] / "serve_app/configs"
ALL = sorted(CONFIGS.glob("*.yaml"))


def applications(path: Path) -> list[dict[str, Any]]:
    found = yaml.safe_load(path.read_text())["applications"]
    assert isinstance(found, list)
    return found


def application(path: Path) -> dict[str, Any]:
    [only] = applications(path)
    return only


def llm(path: Path) -> dict[str, Any]:
    [only] = [one for one in application(path)["deployments"] if one["name"] == "LLM"]
    assert isinstance(only, dict)
    return only


OURS = [path for path in ALL if applications(path)[0]["import_path"] == "serve_app.app:build"]
each = pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
each_of_ours = pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)


@each
def test_serve_takes_it(path: Path) -> None:
    ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))


@each
def test_its_args_build_the_application(path: Path) -> None:
    """Ray's own builder needs vLLM: tests/vllm deploys it."""
    for one in applications(path):
        module, _, builder = one["import_path"].partition(":")
        if module.startswith("serve_app"):
            built = getattr(importlib.import_module(module), builder)(one["args"])
            assert isinstance(built, Application)


@each
def test_scaling_stands_where_it_can_change_without_a_restart(path: Path) -> None:
    """Every scaled deployment is bounded, can grow, and is not reset by the next deploy."""
    for one in applications(path):
        assert "autoscaling_config" not in str(one.get("args"))
        for deployment in one["deployments"]:
            scaling = deployment.get("autoscaling_config")
            assert (scaling is None) != ("num_replicas" not in deployment)
            if scaling and scaling["max_replicas"] > scaling["min_replicas"]:
                assert scaling["min_replicas"] >= 1
                assert "initial_replicas" not in scaling
                assert scaling["target_ongoing_requests"] < deployment["max_ongoing_requests"]


def test_wrong_args_build_nothing() -> None:
    with pytest.raises(InvalidArgs, match=r"engine\.slotz: unknown key"):
        build({"engine": {"slotz": 4}})


@each_of_ours
def test_as_many_ongoing_requests_as_slots(path: Path) -> None:
    settings = parse_args(application(path)["args"])
    assert llm(path)["max_ongoing_requests"] == settings.engine.slots


@each_of_ours
def test_the_file_does_not_take_the_gpus_away(path: Path) -> None:
    """ray_actor_options in the file replace those that `gpus` made."""
    settings = parse_args(application(path)["args"])
    options = llm(path).get("ray_actor_options", placement(settings)["ray_actor_options"])
    assert options.get("num_gpus", 0) == settings.gpus


def test_a_gang_is_one_bundle_on_one_node() -> None:
    settings = parse_args({"gpus": 4, "cpus": 8})
    assert placement(settings) == {
        "ray_actor_options": {"num_cpus": 8.0, "num_gpus": 4},
        "placement_group_bundles": [{"CPU": 8.0, "GPU": 4.0}],
        "placement_group_strategy": "STRICT_PACK",
    }
    assert "placement_group_bundles" not in placement(parse_args({"gpus": 1}))


def test_the_floor_variant_can_be_floored_without_a_restart() -> None:
    autoscaling = llm(CONFIGS / "standin.yaml")["autoscaling_config"]
    assert {"min_replicas", "max_replicas"} <= autoscaling.keys()
    assert "initial_replicas" not in autoscaling
    assert (
        autoscaling["target_ongoing_requests"]
        < llm(CONFIGS / "standin.yaml")["max_ongoing_requests"]
    )


def test_the_external_variant_has_one_scaler() -> None:
    path = CONFIGS / "standin-external.yaml"
    assert application(path)["external_scaler_enabled"]
    assert "autoscaling_config" not in llm(path)
