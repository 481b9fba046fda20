"""Clocks: services receive one as an argument, so that tests can pass their own.

Clocks of machines differ and may be set while a process runs. Deadlines, leases and heartbeats are read by other
processes than wrote them, so all replicas of a service use their database's clock. Between two synchronisations a
monotonic counter advances it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import sqlalchemy as sa

from services.kit.database.engine import Database
from services.kit.errors import Unavailable
from services.kit.observability.logs import get_logger

SYNC_SECONDS = 15.0
"""Interval between synchronisations with the database's clock."""
MAX_ROUND_TRIP_SECONDS = 0.25
"""A slower reply is too inexact; only the first synchronisation accepts it."""
SLEW = 0.1
"""Maximum correction towards the machine's clock on SQLite, in seconds per second: a jump becomes a slope."""
MAX_SLEW_SECONDS = 86_400.0
"""A larger difference means that the machine's clock was not set when the process started: it is applied at once."""
_log = get_logger()


class Clock(Protocol):
    """A source of the time."""

    def now(self) -> float:
        """Unix seconds, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()


def elapsed() -> float:
    """Return monotonic seconds, which include the time that the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SharedClock:
    """The clock of a service's database; on SQLite the machine's clock without its jumps.

    Before `start` it continues the machine's clock from the construction of the object.
    """

    def __init__(
        self, database: Database, machine: Clock | None = None, counted: Callable[[], float] = elapsed
    ) -> None:
        self._database, self._machine, self._counted = database, machine or SystemClock(), counted
        self._started = self._synced_at = counted()
        self._offset = self._machine.now() - self._started
        self._syncing: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Unix seconds, UTC."""
        return self._counted() + self._offset

    @property
    def began_at(self) -> float:
        """When this process started, by this clock."""
        return self._started + self._offset

    async def start(self) -> None:
        """Synchronise with the database's clock, now and every `SYNC_SECONDS`."""
        await self.sync(at_once=True)
        self._syncing = asyncio.create_task(self._keep_syncing())

    async def stop(self) -> None:
        """Stop synchronising."""
        if self._syncing is not None:
            self._syncing.cancel()
            await asyncio.gather(self._syncing, return_exceptions=True)

    async def sync(self, *, at_once: bool = False) -> None:
        """Synchronise once. at_once: accept a slow reply."""
        if self._database.is_sqlite:
            self._follow_machine()
            return
        before = self._counted()
        async with self._database.reading() as tx:
            before = self._counted()  # excludes the time to connect
            shared = (await tx.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())::float8"))).scalar_one()
            after = self._counted()
        if at_once or after - before <= MAX_ROUND_TRIP_SECONDS:
            self._offset = float(shared) - (before + after) / 2.0

    def _follow_machine(self) -> None:
        counted = self._counted()
        behind = self._machine.now() - (counted + self._offset)
        if abs(behind) < MAX_SLEW_SECONDS:
            most = SLEW * (counted - self._synced_at)
            behind = max(-most, min(most, behind))
        self._synced_at, self._offset = counted, self._offset + behind

    async def _keep_syncing(self) -> None:
        while True:
            await asyncio.sleep(SYNC_SECONDS)
            try:
                await self.sync()
            except Unavailable as error:
                _log.warning("clock synchronisation failed; retrying", error=error.message)
