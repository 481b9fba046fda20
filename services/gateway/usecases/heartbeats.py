"""Batch heartbeats: those that arrive during a call to the registry share the next call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie_api.trust.v1 import trust_pb2
from services.kit.runtime.batcher import Batcher

if TYPE_CHECKING:  # exists only in the type stub
    from coterie_api.trust.v1.trust_pb2_grpc import RegistryAsyncStub

MAX_IDS = 10_000


class HeartbeatBatcher:
    """Forwards heartbeats to the registry and waits until it has them."""

    def __init__(self, registry: RegistryAsyncStub) -> None:
        self._registry = registry
        self._batcher = Batcher(self._send, size=MAX_IDS)

    async def beat(self, device_id: str) -> None:
        """Report that a device is alive."""
        await self._batcher.add(device_id)

    async def _send(self, device_ids: Sequence[str]) -> list[Exception | None]:
        await self._registry.Heartbeat(trust_pb2.HeartbeatRequest(device_ids=list(dict.fromkeys(device_ids))))
        return [None] * len(device_ids)
