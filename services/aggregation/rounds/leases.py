"""Who closes and settles a round: one replica at a time, by a lease whose number every closing transaction checks.

A replica that is silent may be dead, stopped or slow, and nobody can tell which. So another one that goes on takes the
lease with the next number first: whatever the silent one still wants to write carries the old number and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from coterie.records.enums import RoundState
from services.aggregation.domain.records import Round
from services.aggregation.errors import LeaseLost
from services.aggregation.store import rounds, sums, tasks
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.runtime.clock import Clock

REPLICA_SILENT_SECONDS = 6.0
"""A replica unheard of for so long holds no lease that another may not take."""


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of this process; one that is started again under the same name begins without any."""

    database: Database
    clock: Clock
    replica: str
    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Round and number of the lease, by task."""

    async def begin(self, round_: Round) -> None:
        """Moves an open round to closing, with the lease in this replica's hands."""
        async with self.database.writing() as tx:
            fresh = self._next(replace(round_, state=RoundState.CLOSING))
            if await rounds.lend(tx, round_, fresh):
                await tasks.change_task(tx, round_.task_id)
                self.held[round_.task_id] = (fresh.number, fresh.fence)

    async def take(self, round_: Round) -> Round | None:
        """The round with a lease of this process, taken over where its holder is gone; None while that one lives."""
        if round_.closer == self.replica and self.held.get(round_.task_id) == (round_.number, round_.fence):
            return round_
        async with self.database.writing() as tx:
            if round_.closer != self.replica and round_.closer in await self.living(tx):
                return None
            fresh = self._next(round_)
            if not await rounds.lend(tx, round_, fresh):
                raise _lost(round_)
        self.held[round_.task_id] = (fresh.number, fresh.fence)
        return fresh

    async def living(self, tx: Tx) -> set[str]:
        """Replicas heard of lately."""
        return await sums.list_replicas(tx, self.clock.now() - REPLICA_SILENT_SECONDS)

    def _next(self, round_: Round) -> Round:
        return replace(round_, closer=self.replica, fence=round_.fence + 1)

    def forget(self, task_id: str) -> None:
        """The task's present round needs no lease any more."""
        self.held.pop(task_id, None)


async def demand(tx: Tx, round_: Round) -> None:
    """Locks a round for the rest of the transaction, if its lease is still the one that `round_` was read with."""
    result = await rounds.find_round(tx, round_.task_id, round_.number, lock=True)
    if result is None or result.fence != round_.fence:
        raise _lost(round_)


def _lost(round_: Round) -> LeaseLost:
    return LeaseLost(f"another replica goes on with round {round_.number} of {round_.task_id}")
