"""Long polls: a call that waits ends early when the caller has gone or the gateway is stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from inspect import iscoroutine
from typing import Any, TypeVar

from starlette.requests import Request

from services.gateway.errors import Stopping

MARGIN_SECONDS = 10.0
T = TypeVar("T")


class LongPoller:
    """Waits on behalf of callers until it is told to `stop`, at shutdown."""

    def __init__(self) -> None:
        self._waiting: set[Any] = set()
        self._stopped = False

    def stop(self) -> None:
        """Lets nobody wait any more."""
        self._stopped = True
        for call in self._waiting:
            call.cancel()

    async def wait(self, request: Request, awaited: Awaitable[T]) -> T:
        """The result of a call, unless there is nobody left to tell or no time left to tell it.

        A call to a service is awaited as it is, not in a task of its own: there are as many of these as devices.
        """
        call: Any = asyncio.ensure_future(awaited) if iscoroutine(awaited) else awaited
        leaving = asyncio.create_task(_gone(request))
        leaving.add_done_callback(lambda gone: gone.cancelled() or call.cancel())
        self._waiting.add(call)
        try:
            if self._stopped:
                call.cancel()
            result: T = await call
            return result
        except asyncio.CancelledError:
            if self._stopped or leaving.done():
                raise Stopping("this gateway is shutting down; ask again in a moment") from None
            raise
        finally:
            self._waiting.discard(call)
            leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
