"""Who may ask: a bearer token, compared in constant time."""

import hmac
from collections.abc import Callable

from starlette.requests import Request

Permit = Callable[[Request], str | None]
"""Why a request is refused, or None."""


def bearer(token: Callable[[], str | None]) -> Permit:
    """Asks for the token that `token()` tells at that moment; where it tells none, nobody may."""

    def permit(request: Request) -> str | None:
        try:
            expected = token()
        except OSError as error:
            return f"http.token_file cannot be read: {error.strerror}"
        if not expected:
            return "set http.token_file: without it nothing can be changed"
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), expected.encode())
        if kind.lower() == "bearer" and right:
            return None
        return "a bearer token is needed: that of http.token_file"

    return permit
