"""What every test shares: the same Hypothesis examples at every run, new ones when asked for; and
logs that no test leaves pointing at a stream that is closed."""

import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

# A red build is then the fault of a change. HYPOTHESIS_PROFILE=explore looks for new examples.
settings.register_profile("repeat", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()
