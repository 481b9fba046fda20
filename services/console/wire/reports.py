"""Privacy reports of devices, kept for a minute: a page shows hundreds of them and is drawn every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from cachetools import TTLCache

from services.console.errors import NotForYou
from services.console.wire.platform import Json, Platform

FRESH_SECONDS = 60.0
MOST_REPORTS = 20_000
AT_A_TIME = 20


class Reports:
    """Reports by device and δ. Only admins may read everybody's, so only they reach it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._known: TTLCache[tuple[str, float], Json] = TTLCache(MOST_REPORTS, FRESH_SECONDS, now)

    async def of(self, platform: Platform, device_ids: Iterable[str], delta: float = 0.0) -> list[Json]:
        """Each device's report; a few are asked for at a time, so that the platform serves others too."""
        platform.require_session()
        if platform.person.role != "admin":
            raise NotForYou("what all devices have spent is for admins")
        gate = asyncio.Semaphore(AT_A_TIME)

        async def one(device_id: str) -> Json:
            known = self._known.get((device_id, delta))
            if known is None:
                async with gate:
                    known = await platform.get(f"/v1/privacy/{device_id}", delta=delta)
                self._known[device_id, delta] = known
            return known

        return list(await asyncio.gather(*(one(item) for item in device_ids)))
