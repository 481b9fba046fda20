"""Long polls: a call that waits ends early when the caller has gone or the gateway is stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import Request

from services.gateway.errors import Stopping

MARGIN_SECONDS = 10.0
T = TypeVar("T")


class Patience:
    """Waits on behalf of callers; `stopping` is set once, at shutdown."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    async def wait(self, request: Request, call: Awaitable[T]) -> T:
        """The result of `call`, unless there is nobody left to tell or no time left to tell it."""
        work = asyncio.ensure_future(_awaited(call))
        others = [asyncio.ensure_future(_gone(request)), asyncio.ensure_future(self.stopping.wait())]
        try:
            await asyncio.wait([work, *others], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            raise Stopping("this gateway is shutting down; ask again in a moment")
        finally:
            for task in (work, *others):
                task.cancel()


async def _awaited(call: Awaitable[T]) -> T:
    return await call


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
