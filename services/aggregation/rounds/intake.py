"""Taking updates in: fold first, then commit many at once.

Each update is checked and folded when it arrives; the database rows of all updates that arrived while the last
transaction was being written go into the next one. A thousand devices that deliver together cost a few transactions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace

from coterie.records.words import EventKind, Form, ParticipationState, Reception, RoundState
from services.aggregation.domain.records import Delivery, Event
from services.aggregation.errors import AlreadyDelivered, BadUpdate, NotInRound
from services.aggregation.rounds.live import LiveRound
from services.aggregation.store import models, rounds, tasks
from services.aggregation.store.library import Library
from services.kit.bell import Bell
from services.kit.clock import Clock
from services.kit.database import Database

SMALL_BYTES = 64 << 10
"""Updates up to this size are folded at once: a thread would cost more than the sum."""
_Waiting = tuple[Delivery, "asyncio.Future[Reception]"]


class Intake:
    """Folds and records deliveries of open rounds."""

    def __init__(self, database: Database, library: Library, bell: Bell, clock: Clock, replica: str) -> None:
        self._database, self._library, self._bell, self._clock, self._replica = database, library, bell, clock, replica
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def take(self, live: LiveRound, delivery: Delivery) -> Reception:
        """Folds and records; what became of it. A bad update raises and changes nothing."""
        async with live.lock:
            state = live.roster.states.get(delivery.device_id)
            folded = (
                state is ParticipationState.ASSIGNED
                and delivery.device_id not in live.folded
                and delivery.form is not Form.REPORT
            )
            if folded:
                measured = await self._fold(live, delivery)
                delivery = replace(delivery, metrics=delivery.metrics | measured)
        try:
            outcome = await self._record(delivery)
        except BaseException:
            if folded:
                await self._take_back(live, delivery)
            raise
        # Repeated while it still counts as pending: an earlier commit succeeded although its answer was lost.
        states = live.roster.states
        pending = states.get(delivery.device_id) is ParticipationState.ASSIGNED
        if outcome is Reception.ACCEPTED or (outcome is Reception.REPEATED and pending):
            states[delivery.device_id] = ParticipationState.DELIVERED
            live.roster.hear(delivery.device_id, delivery.members)
            if live.roster.via or not live.is_waiting:
                self._bell.ring(f"task:{delivery.task_id}")
        elif folded:
            await self._take_back(live, delivery)
        return outcome

    async def discard(self, digest: str) -> None:
        """Forgets a stored update that was not taken, unless something else has the same bytes."""
        if not digest:
            return
        async with self._database.reading() as tx:
            needed = await models.digests_in_use(tx, [digest])
        if not needed:
            await self._library.blobs.delete(digest)

    async def _fold(self, live: LiveRound, delivery: Delivery) -> dict[str, float]:
        try:
            if delivery.size_bytes <= SMALL_BYTES:
                return live.take(self._library, delivery)
            return await asyncio.to_thread(live.take, self._library, delivery)
        except BadUpdate as error:
            await self._note_rejection(delivery, error.message)
            raise

    async def _take_back(self, live: LiveRound, delivery: Delivery) -> None:
        async with live.lock:
            if delivery.device_id in live.folded:
                await asyncio.to_thread(live.unfold, self._library, delivery)

    async def _note_rejection(self, delivery: Delivery, message: str) -> None:
        place, now = (delivery.task_id, delivery.round, delivery.device_id), self._clock.now()
        event = Event(delivery.task_id, now, EventKind.UPDATE_REJECTED, message, delivery.round, delivery.device_id)
        async with self._database.writing() as tx:
            await rounds.refuse(tx, *place, message)
            await tasks.add_events(tx, event)
        self._bell.ring(f"events:{delivery.task_id}")

    async def _record(self, delivery: Delivery) -> Reception:
        future: asyncio.Future[Reception] = asyncio.get_running_loop().create_future()
        self._waiting.append((delivery, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())
        return await future

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                outcomes = await self._commit([delivery for delivery, _ in batch])
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                if future.done():
                    continue
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)

    async def _commit(self, deliveries: list[Delivery]) -> list[Reception | Exception]:
        """One transaction for all; an outcome for each, in order."""
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, delivery in enumerate(deliveries):
            groups[delivery.task_id, delivery.round].append(index)
        outcomes: dict[int, Reception | Exception] = {}
        async with self._database.writing() as tx:
            for (task_id, number), indices in groups.items():
                round_ = await rounds.find_round(tx, task_id, number, lock=True)
                devices = [deliveries[i].device_id for i in indices]
                states = await rounds.states_of(tx, task_id, number, devices)
                taken: dict[str, Delivery] = {}
                for i in indices:
                    is_open = round_ is not None and round_.state is RoundState.OPEN
                    outcomes[i] = _judge(deliveries[i], states, is_open, taken)
                if taken:
                    await rounds.deliver(tx, list(taken.values()), replica=self._replica, now=self._clock.now())
        return [outcomes[i] for i in range(len(deliveries))]


def _judge(
    delivery: Delivery, states: dict[str, tuple[ParticipationState, str]], is_open: bool, taken: dict[str, Delivery]
) -> Reception | Exception:
    """What becomes of one delivery; accepted ones are added to `taken`."""
    if delivery.device_id not in states:
        return NotInRound(
            f"device {delivery.device_id} has no part in round {delivery.round} of this task; ask for work first"
        )
    state, digest = states[delivery.device_id]
    earlier = taken.get(delivery.device_id)
    if state is ParticipationState.DELIVERED or earlier is not None:
        known = earlier.digest if earlier is not None else digest
        if known == delivery.digest:
            return Reception.REPEATED
        return AlreadyDelivered(
            f"another update of {delivery.device_id} is stored for round {delivery.round}: one a round is taken"
        )
    if not is_open or state is not ParticipationState.ASSIGNED:
        return Reception.LATE
    taken[delivery.device_id] = delivery
    return Reception.ACCEPTED
