"""How much a device may have stored in open rounds, updates and letters together."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.enums import ParticipationState
from services.aggregation.errors import QuotaSpent
from services.aggregation.rounds.round_registry import RoundRegistry
from services.aggregation.store import models
from services.kit.database.engine import Database


@dataclass(frozen=True, slots=True)
class Quota:
    """The same for every device."""

    database: Database
    open_rounds: RoundRegistry
    most_bytes: int

    async def check(self, device_id: str, more_bytes: int) -> None:
        """Refuses what a device wants to store beside what it has in open rounds, if that is too much together."""
        taking_part = [live for live in self.open_rounds.by_task.values() if device_id in live.roster.states]
        delivered = [x for x in taking_part if x.roster.states[device_id] is ParticipationState.DELIVERED]
        places = [(live.round.task_id, live.round.number) for live in taking_part]
        async with self.database.reading() as tx:
            sent = await models.letter_bytes(tx, places, device_id)
        stored = sent + sum(live.max_update_bytes(device_id) for live in delivered)
        if stored + more_bytes > self.most_bytes:
            raise QuotaSpent(
                f"device {device_id} has {stored} bytes in open rounds, {more_bytes} more would pass its "
                f"{self.most_bytes}; wait until a round is over, or ask for a higher COTERIE_DEVICE_QUOTA_BYTES",
                details={"limit_bytes": str(self.most_bytes)},
            )
