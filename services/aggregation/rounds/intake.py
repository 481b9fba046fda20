"""Taking updates in: fold first, then commit many at once.

Each update is checked and folded when it arrives; the database rows of all updates that arrived while the last
transaction was being written go into the next one. A thousand devices that deliver together cost a few transactions.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from coterie.records.enums import EventKind, Form, ParticipationState, Reception, RoundState, SumState
from coterie.secure_sums.terms import Place
from services.aggregation.domain.records import Delivery, Event
from services.aggregation.errors import AlreadyDelivered, BadMaskedUpdate, BadUpdate, NotInRound, RoundOver
from services.aggregation.rounds.conductor import ROUND
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import models, rounds, sum_sessions, tasks
from services.aggregation.store.model_files import ModelFiles
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.errors import CoterieError
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.observability.metrics import UPDATE_WAIT_SECONDS, UPDATES_TOTAL
from services.kit.runtime.batcher import Batcher
from services.kit.runtime.clock import Clock

SMALL_BYTES = 64 << 10
"""Updates up to this size are folded at once: a thread would cost more than the sum."""
DELIVERIES_PER_COMMIT = 1000


class Intake:
    """Folds and records deliveries of open rounds."""

    def __init__(
        self,
        database: Database,
        model_files: ModelFiles,
        notifier: Notifier,
        replica_notifier: ReplicaNotifier,
        clock: Clock,
        replica: str,
    ) -> None:
        self._database, self._model_files, self._clock, self.replica = database, model_files, clock, replica
        self._notifier, self._replica_notifier = notifier, replica_notifier
        self._commits = Batcher(self._commit, size=DELIVERIES_PER_COMMIT)

    async def take(self, live: OpenRound, delivery: Delivery) -> Reception:
        """Folds and records; what became of it. A bad update raises and changes nothing."""
        try:
            with UPDATE_WAIT_SECONDS.time():
                outcome = await self._take(live, delivery)
        except CoterieError as error:
            UPDATES_TOTAL.labels(error.reason).inc()
            raise
        UPDATES_TOTAL.labels(outcome).inc()
        return outcome

    async def _take(self, live: OpenRound, delivery: Delivery) -> Reception:
        whole = await self._model_files.ahead(
            delivery
        )  # before the lock, which would make all wait for each other's reading
        async with live.lock:
            state = live.roster.states.get(delivery.device_id)
            is_sated = live.is_full or live.has_its_share(delivery.device_id)
            if is_sated and state is ParticipationState.ASSIGNED:
                return Reception.LATE  # for the next buffer, where it is folded
            folded = (
                state is ParticipationState.ASSIGNED
                and delivery.device_id not in live.folded
                and delivery.form is not Form.REPORT
            )
            if folded:
                delivery = await self._fold(live, delivery, whole)
        try:
            outcome = await self._commits.add((live, delivery))
        except BaseException:
            if folded:
                await self._take_back(live, delivery)
            raise
        # Repeated while it still counts as pending: an earlier commit succeeded although its answer was lost.
        states = live.roster.states
        pending = states.get(delivery.device_id) is ParticipationState.ASSIGNED
        if outcome is Reception.ACCEPTED or (outcome is Reception.REPEATED and pending):
            states[delivery.device_id] = ParticipationState.DELIVERED
            live.roster.record_reports(delivery.device_id, delivery.members)
            live.notice()
            if live.roster.relayed_by or live.is_full or not live.is_waiting:
                self._notifier.notify(f"task:{delivery.task_id}")
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
            await self._model_files.blobs.delete(digest)

    async def _fold(self, live: OpenRound, delivery: Delivery, whole: memoryview | None) -> Delivery:
        """Folds a delivery in; the same with what was found in it."""

        def fold() -> Delivery:
            if delivery.form is Form.MASKED:
                return replace(delivery, masked=live.take_masked(self._model_files, delivery, whole))
            return live.take(self._model_files, delivery, whole)

        # The first update of a round also reads the model's layout, and a far store is never read on the loop.
        here = self._model_files.blobs.is_near and delivery.size_bytes <= SMALL_BYTES
        try:
            return fold() if here else await asyncio.to_thread(fold)
        except (BadUpdate, BadMaskedUpdate) as error:
            await self._note_rejection(delivery, error.message)
            raise

    async def _take_back(self, live: OpenRound, delivery: Delivery) -> None:
        async with live.lock:
            if delivery.device_id in live.folded:
                await asyncio.to_thread(live.unfold, self._model_files, delivery)

    async def _note_rejection(self, delivery: Delivery, message: str) -> None:
        place, now = (delivery.task_id, delivery.round, delivery.device_id), self._clock.now()
        event = Event(delivery.task_id, now, EventKind.UPDATE_REJECTED, message, delivery.round, delivery.device_id)
        async with self._database.writing() as tx:
            await rounds.refuse(tx, *place, message)
            await tasks.add_events(tx, event)
        self._notifier.notify(f"events:{delivery.task_id}")

    async def _commit(self, batch: Sequence[tuple[OpenRound, Delivery]]) -> list[Reception | Exception]:
        """One transaction for all; an outcome for each, in order."""
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, (_, delivery) in enumerate(batch):
            groups[delivery.task_id, delivery.round].append(index)
        outcomes: dict[int, Reception | Exception] = {}
        async with self._database.writing() as tx:
            for indices in groups.values():
                live = batch[indices[0]][0]
                result = await self._commit_round(tx, live, [batch[i][1] for i in indices])
                outcomes |= dict(zip(indices, result, strict=True))
        return [outcomes[i] for i in range(len(batch))]

    async def _commit_round(self, tx: Tx, live: OpenRound, deliveries: list[Delivery]) -> list[Reception | Exception]:
        """Those of one round, whose row is locked from here on."""
        task_id, number = live.task.id, live.round.number
        round_ = await rounds.find_round(tx, task_id, number, lock=True)
        states = await rounds.states_of(tx, task_id, number, [d.device_id for d in deliveries])
        if round_ is not None and live.roster.relayed_by and round_.attempt != live.round.attempt:
            # Planned anew while these were looked at: who is in whose sum is another matter now.
            over = RoundOver(f"round {number} was planned anew meanwhile; ask for work again")
            there = {d for d, (state, _) in states.items() if state is ParticipationState.DELIVERED}
            return [Reception.REPEATED if d.device_id in there else over for d in deliveries]
        counted = await _counted(tx, deliveries)
        room = len(deliveries) if round_ is not None and round_.state is RoundState.OPEN else 0
        shares: Counter[str] | None = None
        if room and live.buffering is not None:
            shares = await rounds.delivered_by_owner(tx, task_id, number)
            # A buffer is full with K updates, unless too few of them are trusted for the task's rule.
            room = max(live.round.quorum - shares.total(), int(live.choice.by_trust and bool(live.unbearable)))
        taken: dict[str, Delivery] = {}
        outcomes: list[Reception | Exception] = []
        sums = await _open_sums(tx, task_id, number, deliveries)
        for delivery in deliveries:
            known = counted.get((delivery.base, delivery.device_id), "")
            owner = live.roster.owners.get(delivery.device_id, "")
            has_room = len(taken) < room and (shares is None or shares[owner] < live.most_of_an_owner)
            outcomes.append(_judge(delivery, states, has_room and _belongs(delivery, sums), taken, known))
            if shares is not None and outcomes[-1] is Reception.ACCEPTED:
                shares[owner] += 1
        if taken:
            await rounds.deliver(tx, list(taken.values()), replica=self.replica, now=self._clock.now())
            await sum_sessions.add_masked(tx, [item.masked for item in taken.values() if item.masked is not None])
            await rounds.carry(tx, list(taken.values()))
            await self._replica_notifier.carry(tx, f"{ROUND}{task_id}:{self.replica}")
        return outcomes


async def _counted(tx: Tx, deliveries: list[Delivery]) -> dict[tuple[int, str], str]:
    """Digests of stale deliveries' work that counted before, by round and device; locks what it looks at."""
    result: dict[tuple[int, str], str] = {}
    for base in {d.base for d in deliveries if d.staleness}:
        devices = [d.device_id for d in deliveries if d.staleness and d.base == base]
        states = await rounds.states_of(tx, deliveries[0].task_id, base, devices)
        result |= {(base, device): digest for device, (_, digest) in states.items()}
    return result


async def _open_sums(tx: Tx, task_id: str, number: int, deliveries: list[Delivery]) -> set[Place]:
    """Sums that take masked words now, locked so that none begins to count meanwhile."""
    if not any(delivery.masked is not None for delivery in deliveries):
        return set()
    present = await sum_sessions.latest_sessions(tx, task_id, number, lock=True)
    return {session.place for session in present.values() if session.state is SumState.OPEN}


def _belongs(delivery: Delivery, sums: set[Place]) -> bool:
    """Whether the sum a delivery was masked for takes it; clear deliveries belong to no sum."""
    masked = delivery.masked
    if masked is None:
        return delivery.form is not Form.MASKED
    return Place(masked.task_id, masked.cohort, masked.round, masked.session_number) in sums


def _judge(
    delivery: Delivery,
    states: dict[str, tuple[ParticipationState, str]],
    is_open: bool,
    taken: dict[str, Delivery],
    counted: str,
) -> Reception | Exception:
    """What becomes of one delivery; accepted ones are added to `taken`.

    `counted` is the digest of an update that was taken for the same work in an earlier round.
    """
    if counted:
        return Reception.REPEATED if counted == delivery.digest else _another(delivery)
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
        return _another(delivery)
    if not is_open or state is not ParticipationState.ASSIGNED:
        return Reception.LATE
    taken[delivery.device_id] = delivery
    return Reception.ACCEPTED


def _another(delivery: Delivery) -> AlreadyDelivered:
    return AlreadyDelivered(
        f"another update of {delivery.device_id} is stored for round {delivery.round}: one a round is taken"
    )
