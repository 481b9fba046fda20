"""Updates made for an earlier round of an asynchronous task: where each counts, or why it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from coterie.records.enums import EventKind, ParticipationState
from services.aggregation.domain.records import Delivery, Event
from services.aggregation.errors import AlreadyDelivered, BufferOpening, NotInRound, RoundOver, TooStale
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.round_registry import RoundRegistry
from services.aggregation.store import rounds, tasks
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier
from services.kit.runtime.clock import Clock

MOST_SECONDS = 15.0
"""Longest wait for a buffer with room; the device must then send again."""
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class LateUpdates:
    """Find the buffer that accepts a late update."""

    database: Database
    open_rounds: RoundRegistry
    notifier: Notifier
    clock: Clock

    async def rebase(
        self, delivery: Delivery, *, after: int = 0, since: float | None = None
    ) -> tuple[OpenRound, Delivery] | None:
        """The open buffer behind round `after`, and the delivery as one of it; waits while the next is being opened.

        That of `after` itself too, if it was opened again and now takes more of the device's owner.
        None when the task is synchronous or over, or this very update counted before: then it is late, or repeated.
        """
        place = (delivery.task_id, delivery.base, delivery.device_id)
        deadline = (self.clock.now() if since is None else since) + MOST_SECONDS
        open_round = await self._buffer(*place, max(after, delivery.base - 1), deadline)
        if open_round is None or open_round.buffering is None:
            return None
        async with self.database.reading() as tx:
            result = (await rounds.states_of(tx, *place[:2], [delivery.device_id])).get(delivery.device_id)
        if result is None:
            raise NotInRound(f"device {place[2]} has no part in round {place[1]}; ask for work first")
        if result[1] == delivery.digest:
            return None
        if result[1]:
            raise AlreadyDelivered(f"another update of {place[2]} counted for its work of round {place[1]}")
        rebased = replace(delivery, round=open_round.round.number)
        why = open_round.buffering.why_not(rebased.staleness)
        if why:
            await self._refuse(delivery, rebased, is_known=result[0] is ParticipationState.LATE, why=why)
        state = open_round.roster.states.get(delivery.device_id)
        if state is None:
            raise RoundOver(f"device {place[2]} has no part in the task any more; enrol again to go on")
        if state is ParticipationState.DELIVERED:
            raise AlreadyDelivered(
                f"another update of {place[2]} is in the buffer of round {open_round.round.number}; ask for work again"
            )
        return open_round, rebased

    async def was_asked(self, task_id: str, number: int, device_id: str) -> bool:
        """Whether a device had work in an earlier round of an asynchronous task that runs."""
        open_round = self.open_rounds.get(task_id)
        if open_round is None or open_round.buffering is None or number >= open_round.round.number:
            return False
        async with self.database.reading() as tx:
            return device_id in await rounds.states_of(tx, task_id, number, [device_id])

    async def _buffer(self, task_id: str, number: int, device_id: str, after: int, deadline: float) -> OpenRound | None:
        has_waited = False
        while True:
            with self.notifier.subscribe(f"device:{device_id}", f"ended:{task_id}") as subscription:
                open_round = self.open_rounds.get(task_id)
                if open_round is not None and (open_round.buffering is None or open_round.round.number > after):
                    return open_round
                has_room = open_round is not None and not open_round.is_full and not open_round.has_its_share(device_id)
                if has_room and has_waited and open_round is not None and open_round.round.number == after:
                    return open_round
                async with self.database.reading() as tx:
                    task = await tasks.find_task(tx, task_id)
                if task is None or task.ended or task.specification.buffering is None or number > task.round:
                    return None
                if self.clock.now() >= deadline:
                    raise BufferOpening("the next buffer of this task is about to open; send the update again")
                await subscription.wait(LOOK_SECONDS)
                has_waited = True

    async def _refuse(self, delivery: Delivery, rebased: Delivery, *, is_known: bool, why: str) -> None:
        """Refuse work that is too stale; record an event the first time."""
        place = (delivery.task_id, delivery.base)
        if not is_known:
            async with self.database.writing() as tx:
                late = ParticipationState.LATE
                await rounds.mark(tx, *place, [delivery.device_id], state=late, note=f"not counted: {why}"[:500])
                happened = (EventKind.UPDATE_STALE, f"made for round {delivery.base}: {why}", rebased.round)
                await tasks.add_events(tx, Event(delivery.task_id, self.clock.now(), *happened, delivery.device_id))
            self.notifier.notify(f"events:{delivery.task_id}")
        raise TooStale(why, details={"staleness": str(rebased.staleness)})
