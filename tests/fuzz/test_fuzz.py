"""The parsers of outside bytes on their seeds, on mutations of them by Hypothesis, and for a short
seeded time under coverage guidance. `make fuzz` is the long run."""

import importlib.util
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.__main__ import NAMES
from tests.fuzz.targets import TARGETS, check

RUNS = 1_500


def test_every_target_is_listed() -> None:
    assert set(NAMES) == set(TARGETS)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_taken(name: str) -> None:
    """A seed that is refused would lead the fuzzer nowhere."""
    taken = 0
    for body in TARGETS[name].seeds():
        try:
            TARGETS[name].run(body)
            taken += 1
        except TARGETS[name].allowed:
            pass
    assert taken


edits = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 40),
        st.one_of(
            st.binary(max_size=12),
            st.sampled_from(
                [b"NaN", b"Infinity", b"null", b"-1", b"1e999", b'"', b"{", b"[" * 5000, b"\x00"]
            ),
            st.sampled_from(
                [b"\xff", b'"\\ud800"', b"9" * 400, b"&a *a", b"!!python/x", b",", b""]
            ),
        ),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 9), edits)
def test_what_is_edited_raises_only_what_is_documented(
    name: str, which: int, made: list[tuple[float, int, bytes]]
) -> None:
    seeds = TARGETS[name].seeds()
    body = seeds[which % len(seeds)]
    for share, dropped, put in made:
        at = int(share * len(body))
        body = body[:at] + put + body[at + dropped :]
    check(name, body)


@pytest.mark.parametrize("name", NAMES)
def test_guided_by_coverage_nothing_crashes(name: str) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no wheel for this platform")
    command = [sys.executable, "-m", "tests.fuzz", name, "--runs", str(RUNS), "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:]
