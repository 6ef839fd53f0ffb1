"""Which version of a model a conversation gets: a stable hash, the same in every replica. Pure."""

import hashlib
from collections.abc import Sequence

from serve_app.engine import Message

Shares = Sequence[tuple[str, float]]
"""Versions and their shares of conversations, which sum to 1."""


def version_of(conversation: str, shares: Shares, model: str) -> str:
    """The version that this conversation gets, now and ever while the shares stay.

    When the last version's share grows from 10 % to 20 %, only that tenth of all conversations
    moves to it; none moves the other way (test_split.py). Two models split independently.
    """
    place = position(conversation, model)
    upper = 0.0
    for name, share in shares[:-1]:
        upper += share
        if place < upper:
            return name
    return shares[-1][0]


def position(conversation: str, model: str) -> float:
    """Where on 0..1 a conversation falls, uniformly over conversations."""
    digest = hashlib.blake2b(f"{model}\0{conversation}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def opening(messages: Sequence[Message]) -> str:
    """All up to the first thing the user said: what the turns of a conversation have in common.

    Clients send the whole conversation with each turn, so this names one that has no id.
    """
    lines: list[str] = []
    for message in messages:
        lines.append(f"{message.role}\0{message.content}")
        if message.role == "user":
            break
    return "\0".join(lines)
