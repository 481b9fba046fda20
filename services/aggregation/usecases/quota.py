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
        """Require that a device's blobs in open rounds stay within the quota with `more_bytes` more."""
        taking_part = [
            open_round for open_round in self.open_rounds.by_task.values() if device_id in open_round.roster.states
        ]
        delivered = [x for x in taking_part if x.roster.states[device_id] is ParticipationState.DELIVERED]
        places = [(open_round.round.task_id, open_round.round.number) for open_round in taking_part]
        async with self.database.reading() as tx:
            sent = await models.letter_bytes(tx, places, device_id)
        stored = sent + sum(open_round.max_update_bytes(device_id) for open_round in delivered)
        if stored + more_bytes > self.most_bytes:
            raise QuotaSpent(
                f"device {device_id} has {stored} bytes in open rounds, {more_bytes} more would pass its "
                f"{self.most_bytes}; wait until a round is over, or ask for a higher COTERIE_DEVICE_QUOTA_BYTES",
                details={"limit_bytes": str(self.most_bytes)},
            )
