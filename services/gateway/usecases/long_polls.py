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
    """Waits for upstream calls; ends early when the caller disconnects or the gateway stops."""

    def __init__(self) -> None:
        self._waiting: set[Any] = set()
        self._stopped = False

    def stop(self) -> None:
        """Cancel every wait, now and later; called at shutdown."""
        self._stopped = True
        for call in self._waiting:
            call.cancel()

    async def wait(self, request: Request, awaited: Awaitable[T]) -> T:
        """The result of an upstream call; raises `Stopping` when the caller has gone or the gateway stops.

        The call is awaited directly, without another task: there is one long poll per device.
        """
        call: Any = asyncio.ensure_future(awaited) if iscoroutine(awaited) else awaited
        disconnect = asyncio.create_task(_gone(request))
        disconnect.add_done_callback(lambda gone: gone.cancelled() or call.cancel())
        self._waiting.add(call)
        try:
            if self._stopped:
                call.cancel()
            result: T = await call
            return result
        except asyncio.CancelledError:
            if self._stopped or disconnect.done():
                raise Stopping("this gateway is shutting down; ask again in a moment") from None
            raise
        finally:
            self._waiting.discard(call)
            disconnect.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue
