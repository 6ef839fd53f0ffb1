"""The shipped configs: Serve's own schema takes them, and they keep what Leadtime asks for."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve import Application
from ray.serve.schema import ServeDeploySchema

from serve_app.app import build
from serve_app.settings import InvalidArgs, parse_args

CONFIGS = Path(__file__).resolve().parents[2] / "serve_app/configs"
ALL = sorted(CONFIGS.glob("*.yaml"))


def application(path: Path) -> dict[str, Any]:
    [only] = yaml.safe_load(path.read_text())["applications"]
    assert isinstance(only, dict)
    return only


def llm(path: Path) -> dict[str, Any]:
    [only] = [one for one in application(path)["deployments"] if one["name"] == "LLM"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_serve_takes_it(path: Path) -> None:
    ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_its_args_build_the_application(path: Path) -> None:
    assert isinstance(build(application(path)["args"]), Application)


def test_wrong_args_build_nothing() -> None:
    with pytest.raises(InvalidArgs, match=r"engine\.slotz: unknown key"):
        build({"engine": {"slotz": 4}})


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_as_many_ongoing_requests_as_slots(path: Path) -> None:
    settings = parse_args(application(path)["args"])
    assert llm(path)["max_ongoing_requests"] == settings.engine.slots


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
