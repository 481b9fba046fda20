"""Privacy reports of devices, cached for a minute: a page shows hundreds and refreshes every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from cachetools import TTLCache

from services.console.errors import NotForYou
from services.console.wire.platform import Json, Platform

FRESH_SECONDS = 60.0
MOST_REPORTS = 20_000
CONCURRENT_READS = 20


class Reports:
    """Cache of reports by device and δ; only admins may read all of them, so only they may use it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._cache: TTLCache[tuple[str, float], Json] = TTLCache(MOST_REPORTS, FRESH_SECONDS, now)

    async def of(self, platform: Platform, device_ids: Iterable[str], delta: float = 0.0) -> list[Json]:
        """Return the devices' reports, at most `CONCURRENT_READS` requests at a time."""
        platform.require_session()
        if platform.person.role != "admin":
            raise NotForYou("only admins may see what all devices have spent")
        limit = asyncio.Semaphore(CONCURRENT_READS)

        async def one(device_id: str) -> Json:
            cached = self._cache.get((device_id, delta))
            if cached is None:
                async with limit:
                    cached = await platform.get(f"/v1/privacy/{device_id}", delta=delta)
                self._cache[device_id, delta] = cached
            return cached

        return list(await asyncio.gather(*(one(item) for item in device_ids)))
