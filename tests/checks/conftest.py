"""The inspection of the recorded cluster, for every test of what is made of it."""

import asyncio

import pytest

from controller.checks.findings import Inspection
from controller.checks.inspect import inspect
from tests.checks.servers import recorded


@pytest.fixture(scope="package")
def seen() -> Inspection:
    with recorded() as settings:
        return asyncio.run(inspect(settings))
