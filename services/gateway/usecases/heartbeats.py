"""Heartbeats, many per call: those that arrive while a call to the registry is under way share the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie_api.trust.v1 import trust_pb2
from services.kit.runtime.batcher import Batcher

if TYPE_CHECKING:  # exists in the type stub alone
    from coterie_api.trust.v1.trust_pb2_grpc import RegistryAsyncStub

MOST_IDS = 10_000


class HeartbeatBatcher:
    """Forwards heartbeats to the registry; each returns when the registry has it."""

    def __init__(self, registry: RegistryAsyncStub) -> None:
        self._registry = registry
        self._batcher = Batcher(self._send, size=MOST_IDS)

    async def beat(self, device_id: str) -> None:
        """Report that a device is alive."""
        await self._batcher.add(device_id)

    async def _send(self, device_ids: Sequence[str]) -> list[Exception | None]:
        await self._registry.Heartbeat(trust_pb2.HeartbeatRequest(device_ids=list(dict.fromkeys(device_ids))))
        return [None] * len(device_ids)
