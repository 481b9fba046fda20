"""Heartbeats, collected in memory and written in batches: one transaction every few seconds for all devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from services.kit.database.engine import Database
from services.kit.errors import Unavailable
from services.kit.observability.logs import get_logger
from services.trust.domain import checks
from services.trust.domain.records import Device
from services.trust.store import devices

_log = get_logger()


class Heartbeats:
    """Devices with a heartbeat since the last write. `run` writes every `flush_seconds`; `flush` writes now."""

    def __init__(self, database: Database, flush_seconds: float) -> None:
        self._database = database
        self._flush_seconds = flush_seconds
        self._seen: dict[str, float] = {}

    async def hear(self, device_ids: Sequence[str], at: float) -> None:
        """Record that devices were alive at `at`; unknown ids change nothing."""
        self._seen.update((device_id, at) for device_id in device_ids if checks.is_id("dev", device_id))

    def freshen(self, device: Device) -> Device:
        """Return `device` with its latest heartbeat."""
        at = self._seen.get(device.id, 0.0)
        return replace(device, last_seen_at=at) if at > device.last_seen_at else device

    async def flush(self) -> None:
        """Write the collected heartbeats; retain them if the database is unreachable."""
        held, self._seen = self._seen, {}
        if not held:
            return
        try:
            async with self._database.writing() as tx:
                await devices.set_last_seen(tx, held)
        except BaseException:
            self._seen = {**held, **self._seen}
            raise

    async def run(self) -> None:
        """Flush until cancelled; retry at the next interval when the database is unreachable."""
        while True:
            await asyncio.sleep(self._flush_seconds)
            try:
                await self.flush()
            except Unavailable as error:
                _log.warning("heartbeats not written; retrying", error=error.message)
