"""Gauge of running tasks by the state of their round.

Counted in the database, so it is right after a restart and equal on every replica.
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
"""Between two rounds, or before the first: too few devices, or it is about to open."""
_log = get_logger()


@dataclass
class RoundGauge:
    """Count every `seconds` while it runs."""

    database: Database
    seconds: float = 15.0
    _counting: asyncio.Task[None] | None = field(default=None, init=False)

    async def start(self) -> None:

        self._counting = asyncio.create_task(self._go_on())

    async def stop(self) -> None:

        if self._counting is not None:
            self._counting.cancel()
            await asyncio.gather(self._counting, return_exceptions=True)

    async def count(self) -> None:
        """Count the rounds once and set the gauge."""
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
                _log.warning("database unavailable, counting rounds again later")
            await asyncio.sleep(self.seconds)
