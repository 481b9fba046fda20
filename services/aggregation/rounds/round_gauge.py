"""The census: how many running tasks have their round in which state, for whoever watches the platform.

Counted in the database, so that it is true after any restart; every replica tells the same.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from services.aggregation.store import rounds
from services.kit.database.engine import Database
from services.kit.errors import Unavailable
from services.kit.observability.logs import get_logger
from services.kit.observability.metrics import ROUNDS

WAITING = "waiting"
"""Between two rounds, or before the first: devices are missing, or it opens in a moment."""
_log = get_logger()


@dataclass
class RoundGauge:
    """Counts again and again while it runs."""

    database: Database
    seconds: float = 15.0
    _counting: asyncio.Task[None] | None = field(default=None, init=False)

    async def start(self) -> None:
        """Begins."""
        self._counting = asyncio.create_task(self._go_on())

    async def stop(self) -> None:
        """Ends."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def count(self) -> None:
        """Counts once."""
        async with self.database.reading() as tx:
            result = await rounds.count_present(tx)
        waiting = sum(number for state, number in result.items() if state not in rounds.UNDER_WAY)
        for state in rounds.UNDER_WAY:
            ROUNDS.labels(state).set(result.get(state, 0))
        ROUNDS.labels(WAITING).set(waiting)

    async def _go_on(self) -> None:
        while True:
            try:
                await self.count()
            except Unavailable:
                _log.warning("database away, rounds are counted again soon")
            await asyncio.sleep(self.seconds)
