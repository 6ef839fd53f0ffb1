"""A Serve application that waits as long as a request says: what counts is who scales it."""

import asyncio

from ray import serve
from starlette.requests import Request


class Waiting:
    """Answers after the seconds in the path."""

    async def __call__(self, request: Request) -> str:
        await asyncio.sleep(float(request.query_params.get("s", "0")))
        return "done"


app = serve.deployment(Waiting).bind()
