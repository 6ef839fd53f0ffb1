"""The process that fits: results come back, failures too; it goes when it has nothing to do."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from controller.adapters import fitter as module
from controller.adapters.fitter import Fitter
from controller.core.forecasting.fitting import FitJob, Fitted
from controller.core.forecasting.forecaster import PROBABILITIES
from controller.core.types import DeploymentId
from tests.core.loads import SHORT_DAY, daily

ONE, OTHER = DeploymentId("app", "one"), DeploymentId("app", "other")


@pytest.fixture
def fitter() -> Iterator[Fitter]:
    made = Fitter()
    yield made
    made.close()


def job(seasons: int = 2, horizons: tuple[int, ...] = (1, 6)) -> FitJob:
    rates = daily(SHORT_DAY, seasons, seed=1)
    return FitJob(SHORT_DAY, rates, len(rates), horizons, 4, PROBABILITIES)


def results(fitter: Fitter, count: int) -> dict[DeploymentId, Fitted | Exception]:
    found: dict[DeploymentId, Fitted | Exception] = {}
    until_s = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until_s:
        found |= dict(fitter.poll())
        time.sleep(0.01)
    return found


def test_every_deployment_gets_its_models_and_a_failure_says_why(fitter: Fitter) -> None:
    fitter.submit(ONE, job())
    fitter.submit(OTHER, replace(job(), probabilities=np.array([2.0])))
    assert not fitter.idle
    found = results(fitter, 2)
    fitted, failed = found[ONE], found[OTHER]
    assert isinstance(fitted, Fitted)
    assert [model.horizon_bins for model in fitted.models] == [1, 6]
    assert isinstance(failed, ValueError)
    assert fitter.poll() == []


def test_a_newer_job_takes_the_place_of_one_that_waits(fitter: Fitter) -> None:
    fitter.submit(ONE, job())
    fitter.submit(OTHER, job(horizons=(1,)))
    fitter.submit(OTHER, job(horizons=(3,)))
    found = results(fitter, 2)[OTHER]
    assert isinstance(found, Fitted)
    assert found.models[0].horizon_bins == 3
    assert fitter.poll() == []


def test_the_process_ends_when_idle_and_comes_back_for_a_job(
    fitter: Fitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitter.submit(ONE, job())
    results(fitter, 1)
    monkeypatch.setattr(module, "IDLE_S", -1.0)
    fitter.poll()
    assert fitter._pool is None  # noqa: SLF001
    fitter.submit(ONE, job())
    assert isinstance(results(fitter, 1)[ONE], Fitted)
