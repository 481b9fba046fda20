"""Time as an argument: services ask a clock, tests hand in their own.

Machines disagree about the time, and each may be set while a process runs. Deadlines, leases and signs of life are
read by other processes than wrote them, so a service goes by its database's clock, which all of them share; between
two looks at it time passes as the processor counts it.
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

LOOK_SECONDS = 15.0
"""How often the shared time is looked at again."""
CLOSE_SECONDS = 0.25
"""A look that took longer says little; it counts only where nothing better is known."""
SLEW = 0.1
"""How fast the machine's own clock is followed on SQLite, in seconds a second: a jump becomes a slope."""
NONSENSE_SECONDS = 86_400.0
"""A machine's clock that was off by more had not been set when the process began: it is followed at once."""
_log = get_logger()


class Clock(Protocol):
    """Something that knows what time it is."""

    def now(self) -> float:
        """Unix seconds, UTC."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()


def elapsed() -> float:
    """Seconds that pass evenly, also while the machine sleeps, whatever its clock is set to."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SharedClock:
    """The time of a service's database. On SQLite that is the machine's, without its jumps.

    Before `start` it is the machine's clock as it was when the object was made.
    """

    def __init__(
        self, database: Database, machine: Clock | None = None, counted: Callable[[], float] = elapsed
    ) -> None:
        self._database, self._machine, self._counted = database, machine or SystemClock(), counted
        self._began = self._looked = counted()
        self._offset = self._machine.now() - self._began
        self._looking: asyncio.Task[None] | None = None

    def now(self) -> float:
        """Unix seconds, UTC."""
        return self._counted() + self._offset

    @property
    def began_at(self) -> float:
        """When this process began, by this clock."""
        return self._began + self._offset

    async def start(self) -> None:
        """Takes the shared time over, and goes on looking at it."""
        await self.look(at_once=True)
        self._looking = asyncio.create_task(self._look_again())

    async def stop(self) -> None:
        """Looks no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def look(self, *, at_once: bool = False) -> None:
        """Compares with the shared time once; `at_once` also takes a slow answer."""
        if self._database.is_sqlite:
            self._follow_machine()
            return
        before = self._counted()
        async with self._database.reading() as tx:
            before = self._counted()  # a connection may have had to be made
            told = (await tx.execute(sa.text("SELECT extract(epoch FROM clock_timestamp())::float8"))).scalar_one()
            after = self._counted()
        if at_once or after - before <= CLOSE_SECONDS:
            self._offset = float(told) - (before + after) / 2.0

    def _follow_machine(self) -> None:
        counted = self._counted()
        behind = self._machine.now() - (counted + self._offset)
        if abs(behind) < NONSENSE_SECONDS:
            most = SLEW * (counted - self._looked)
            behind = max(-most, min(most, behind))
        self._looked, self._offset = counted, self._offset + behind

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Unavailable as error:
                _log.warning("the shared time is not known for a while", why=error.message)
