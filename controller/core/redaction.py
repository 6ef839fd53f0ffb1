"""Secrets taken out of what others say: a server may echo what we sent it."""

from collections.abc import Iterable

SHORTEST = 4
PUT_INSTEAD = "[redacted]"


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` without any of `secrets`; shorter ones than four characters are left in, as they
    would take ordinary words apart."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, PUT_INSTEAD)
    return text
