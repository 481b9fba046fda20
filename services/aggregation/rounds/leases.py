"""Leases with fencing tokens: one replica at a time closes and settles a round.

A silent replica may be dead, stopped or slow; the others cannot tell. So a replica that takes over first acquires the
lease with the next fencing number: writes of the silent one carry the old number and are refused.
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
"""Time without a heartbeat after which other replicas may take over a replica's leases."""


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of this process; after a restart under the same name it holds none."""

    database: Database
    clock: Clock
    replica: str
    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Round and number of the lease, by task."""

    async def begin(self, round_: Round) -> None:
        """Move an open round to closing and acquire its lease."""
        async with self.database.writing() as tx:
            fresh = self._next(replace(round_, state=RoundState.CLOSING))
            if await rounds.lend(tx, round_, fresh):
                await tasks.change_task(tx, round_.task_id)
                self.held[round_.task_id] = (fresh.number, fresh.fence)

    async def take(self, round_: Round) -> Round | None:
        """Return the round with a lease of this process, taken over from a dead holder; None while the holder lives."""
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
        """Return the replicas with a recent heartbeat."""
        return await sums.list_replicas(tx, self.clock.now() - REPLICA_SILENT_SECONDS)

    def _next(self, round_: Round) -> Round:
        return replace(round_, closer=self.replica, fence=round_.fence + 1)

    def forget(self, task_id: str) -> None:
        """Drop the lease of the task's current round."""
        self.held.pop(task_id, None)


async def require_lease(tx: Tx, round_: Round) -> None:
    """Lock a round for the rest of the transaction; raise `LeaseLost` if its fencing number is not that of `round_`."""
    result = await rounds.find_round(tx, round_.task_id, round_.number, lock=True)
    if result is None or result.fence != round_.fence:
        raise _lost(round_)


def _lost(round_: Round) -> LeaseLost:
    return LeaseLost(f"another replica took over round {round_.number} of {round_.task_id}")
