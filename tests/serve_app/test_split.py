"""The split: the same everywhere, true to its shares, and few move when the shares do."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.engine import Message
from serve_app.graph.split import opening, position, version_of

CONVERSATIONS = [f"conversation-{number}" for number in range(4000)]


def halves(share_of_b: float) -> tuple[tuple[str, float], ...]:
    return (("a", 1.0 - share_of_b), ("b", share_of_b))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_each_version_gets_its_share(share: float) -> None:
    got = sum(version_of(one, halves(share), "chat") == "b" for one in CONVERSATIONS)
    deviation = (share * (1 - share) / len(CONVERSATIONS)) ** 0.5
    assert got / len(CONVERSATIONS) == pytest.approx(share, abs=4 * deviation)


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_growing_version_only_gains(conversation: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    if version_of(conversation, halves(small), "chat") == "b":
        assert version_of(conversation, halves(large), "chat") == "b"


def test_only_the_difference_moves() -> None:
    moved = sum(
        version_of(one, halves(0.1), "chat") != version_of(one, halves(0.2), "chat")
        for one in CONVERSATIONS
    )
    assert moved / len(CONVERSATIONS) == pytest.approx(0.1, abs=0.02)


def test_two_models_split_independently() -> None:
    both = sum(position(one, "chat") < 0.5 and position(one, "code") < 0.5 for one in CONVERSATIONS)
    assert both / len(CONVERSATIONS) == pytest.approx(0.25, abs=0.03)


def test_every_process_agrees() -> None:
    """Python's own hash does not: it is salted a process."""
    code = "from serve_app.graph.split import position; print(position('x', 'chat'))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(told.stdout) == position("x", "chat")


def test_the_opening_is_the_same_in_every_turn() -> None:
    first = [Message("system", "be brief"), Message("user", "hi")]
    later = [*first, Message("assistant", "hello"), Message("user", "and now?")]
    assert opening(later) == opening(first)
    assert opening(first) != opening([Message("system", "be long"), Message("user", "hi")])
    assert opening(first) != opening([Message("user", "hi")])
