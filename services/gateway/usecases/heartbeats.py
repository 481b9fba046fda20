"""Heartbeats, many to a call: those that come while one call is under way share the next.

Each waits for the call that carries it, so an answered heartbeat has reached the registry; under load a thousand
devices cost a few calls instead of a thousand.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

from coterie_api.trust.v1 import trust_pb2

if TYPE_CHECKING:  # exists in the type stub alone
    from coterie_api.trust.v1.trust_pb2_grpc import RegistryAsyncStub

MOST_IDS = 10_000


class HeartbeatBatcher:
    """Passes heartbeats on in batches."""

    def __init__(self, registry: RegistryAsyncStub) -> None:
        self._registry = registry
        self._waiting: dict[str, None] = {}
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Task[None] | None = None

    async def beat(self, device_id: str) -> None:
        """Notes that a device is alive; returns when the registry knows."""
        self._waiting[device_id] = None
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        mine = self._next
        if self._running is None:
            # An empty context: the call speaks for the platform, not for whichever device came first.
            self._running = asyncio.get_running_loop().create_task(self._carry(), context=contextvars.Context())
        await asyncio.shield(mine)

    async def _carry(self) -> None:
        try:
            while self._next is not None:
                batch, self._waiting = list(self._waiting), {}
                done, self._next = self._next, None
                try:
                    for start in range(0, len(batch), MOST_IDS):
                        request = trust_pb2.HeartbeatRequest(device_ids=batch[start : start + MOST_IDS])
                        await self._registry.Heartbeat(request)
                except Exception as error:
                    done.set_exception(error)
                    done.exception()  # retrieved: nobody may be left waiting
                else:
                    done.set_result(None)
        finally:
            self._running = None
