"""Names of devices and owners, cached for a few seconds and shared by all admins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from services.console.domain.names import Names
from services.console.errors import NotForYou
from services.console.wire.platform import Json, Platform

FRESH_SECONDS = 15.0


class Directory:
    """Cache of names; only admins may list devices and owners, so only they may use it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._names = Names()
        self._lock = asyncio.Lock()
        self._owners: dict[str, Json] = {}
        self._owners_at = 0.0
        self._owners_lock = asyncio.Lock()

    async def owners(self, platform: Platform, *, fresh_seconds: float = 300.0) -> dict[str, Json]:
        """Return the owners by id, at most `fresh_seconds` old."""
        self._require_admin(platform)
        async with self._owners_lock:
            if self._now() - self._owners_at > fresh_seconds:
                owners = await platform.all("/v1/owners")
                self._owners, self._owners_at = {owner["id"]: owner for owner in owners}, self._now()
        return self._owners

    async def names(self, platform: Platform, *, fresh_seconds: float = FRESH_SECONDS) -> Names:
        """Return the names of all devices and owners, at most `fresh_seconds` old."""
        self._require_admin(platform)
        async with self._lock:
            if self._now() - self._names.at > fresh_seconds:
                devices, owners = await asyncio.gather(
                    platform.all("/v1/devices"), self.owners(platform, fresh_seconds=fresh_seconds)
                )
                self._names = Names({device["id"]: device for device in devices}, owners, self._now())
        return self._names

    @staticmethod
    def _require_admin(platform: Platform) -> None:
        platform.require_session()
        if platform.person.role != "admin":
            raise NotForYou("only admins may list all devices and owners")
