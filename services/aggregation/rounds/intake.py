"""Accept updates: fold each on arrival, then commit many at once.

The rows of all updates that arrive during one transaction go into the next. A thousand simultaneous deliveries cost a
few transactions.
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
"""Updates up to this size are folded on the event loop: a thread would cost more than the sum."""
DELIVERIES_PER_COMMIT = 1000


class Intake:
    """Fold and record deliveries of open rounds."""

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

    async def take(self, open_round: OpenRound, delivery: Delivery) -> Reception:
        """Fold and record a delivery; return its reception. A bad update raises and changes nothing."""
        try:
            with UPDATE_WAIT_SECONDS.time():
                outcome = await self._take(open_round, delivery)
        except CoterieError as error:
            UPDATES_TOTAL.labels(error.reason).inc()
            raise
        UPDATES_TOTAL.labels(outcome).inc()
        return outcome

    async def _take(self, open_round: OpenRound, delivery: Delivery) -> Reception:
        # Before the lock: under it, deliveries would wait for each other's reads.
        whole = await self._model_files.ahead(delivery)
        async with open_round.lock:
            state = open_round.roster.states.get(delivery.device_id)
            is_sated = open_round.is_full or open_round.has_its_share(delivery.device_id)
            if is_sated and state is ParticipationState.ASSIGNED:
                return Reception.LATE  # it is folded into the next buffer
            folded = (
                state is ParticipationState.ASSIGNED
                and delivery.device_id not in open_round.folded
                and delivery.form is not Form.REPORT
            )
            if folded:
                delivery = await self._fold(open_round, delivery, whole)
        try:
            outcome = await self._commits.add((open_round, delivery))
        except BaseException:
            if folded:
                await self._take_back(open_round, delivery)
            raise
        # REPEATED while still pending here: an earlier commit succeeded although its reply was lost.
        states = open_round.roster.states
        pending = states.get(delivery.device_id) is ParticipationState.ASSIGNED
        if outcome is Reception.ACCEPTED or (outcome is Reception.REPEATED and pending):
            states[delivery.device_id] = ParticipationState.DELIVERED
            open_round.roster.record_reports(delivery.device_id, delivery.members)
            open_round.notice()
            if open_round.roster.relayed_by or open_round.is_full or not open_round.is_waiting:
                self._notifier.notify(f"task:{delivery.task_id}")
        elif folded:
            await self._take_back(open_round, delivery)
        return outcome

    async def discard(self, digest: str) -> None:
        """Delete a stored update that was not accepted, unless another row names the same digest."""
        if not digest:
            return
        async with self._database.reading() as tx:
            needed = await models.digests_in_use(tx, [digest])
        if not needed:
            await self._model_files.blobs.delete(digest)

    async def _fold(self, open_round: OpenRound, delivery: Delivery, whole: memoryview | None) -> Delivery:
        """Fold a delivery; return it with its measurements."""

        def fold() -> Delivery:
            if delivery.form is Form.MASKED:
                return replace(delivery, masked=open_round.take_masked(self._model_files, delivery, whole))
            return open_round.take(self._model_files, delivery, whole)

        # The first update of a round also reads the model's layout; a remote store is never read on the event loop.
        on_loop = self._model_files.blobs.is_near and delivery.size_bytes <= SMALL_BYTES
        try:
            return fold() if on_loop else await asyncio.to_thread(fold)
        except (BadUpdate, BadMaskedUpdate) as error:
            await self._note_rejection(delivery, error.message)
            raise

    async def _take_back(self, open_round: OpenRound, delivery: Delivery) -> None:
        async with open_round.lock:
            if delivery.device_id in open_round.folded:
                await asyncio.to_thread(open_round.unfold, self._model_files, delivery)

    async def _note_rejection(self, delivery: Delivery, message: str) -> None:
        place, now = (delivery.task_id, delivery.round, delivery.device_id), self._clock.now()
        event = Event(delivery.task_id, now, EventKind.UPDATE_REJECTED, message, delivery.round, delivery.device_id)
        async with self._database.writing() as tx:
            await rounds.refuse(tx, *place, message)
            await tasks.add_events(tx, event)
        self._notifier.notify(f"events:{delivery.task_id}")

    async def _commit(self, batch: Sequence[tuple[OpenRound, Delivery]]) -> list[Reception | Exception]:
        """Commit a batch in one transaction; return the outcomes in order."""
        groups: dict[tuple[str, int], list[int]] = defaultdict(list)
        for index, (_, delivery) in enumerate(batch):
            groups[delivery.task_id, delivery.round].append(index)
        outcomes: dict[int, Reception | Exception] = {}
        async with self._database.writing() as tx:
            for indices in groups.values():
                open_round = batch[indices[0]][0]
                result = await self._commit_round(tx, open_round, [batch[i][1] for i in indices])
                outcomes |= dict(zip(indices, result, strict=True))
        return [outcomes[i] for i in range(len(batch))]

    async def _commit_round(
        self, tx: Tx, open_round: OpenRound, deliveries: list[Delivery]
    ) -> list[Reception | Exception]:
        """Commit the deliveries of one round; locks its row."""
        task_id, number = open_round.task.id, open_round.round.number
        round_ = await rounds.find_round(tx, task_id, number, lock=True)
        states = await rounds.states_of(tx, task_id, number, [d.device_id for d in deliveries])
        if round_ is not None and open_round.roster.relayed_by and round_.attempt != open_round.round.attempt:
            # Replanned meanwhile: the members of each head's sum may have changed.
            over = RoundOver(f"round {number} was replanned meanwhile; ask for work again")
            there = {d for d, (state, _) in states.items() if state is ParticipationState.DELIVERED}
            return [Reception.REPEATED if d.device_id in there else over for d in deliveries]
        counted = await _counted(tx, deliveries)
        room = len(deliveries) if round_ is not None and round_.state is RoundState.OPEN else 0
        shares: Counter[str] | None = None
        if room and open_round.buffering is not None:
            shares = await rounds.delivered_by_owner(tx, task_id, number)
            # A buffer is full with K updates, unless too few of them are trusted for the task's rule.
            room = max(
                open_round.round.quorum - shares.total(),
                int(open_round.choice.by_trust and bool(open_round.unbearable)),
            )
        taken: dict[str, Delivery] = {}
        outcomes: list[Reception | Exception] = []
        sums = await _open_sums(tx, task_id, number, deliveries)
        for delivery in deliveries:
            known = counted.get((delivery.base, delivery.device_id), "")
            owner = open_round.roster.owners.get(delivery.device_id, "")
            has_room = len(taken) < room and (shares is None or shares[owner] < open_round.most_of_an_owner)
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
    """Return digests already counted for the base rounds of stale deliveries, by round and device; locks these rows."""
    result: dict[tuple[int, str], str] = {}
    for base in {d.base for d in deliveries if d.staleness}:
        devices = [d.device_id for d in deliveries if d.staleness and d.base == base]
        states = await rounds.states_of(tx, deliveries[0].task_id, base, devices)
        result |= {(base, device): digest for device, (_, digest) in states.items()}
    return result


async def _open_sums(tx: Tx, task_id: str, number: int, deliveries: list[Delivery]) -> set[Place]:
    """Return the sums that accept masked updates now; locks them, so that none starts closing meanwhile."""
    if not any(delivery.masked is not None for delivery in deliveries):
        return set()
    present = await sum_sessions.latest_sessions(tx, task_id, number, lock=True)
    return {session.place for session in present.values() if session.state is SumState.OPEN}


def _belongs(delivery: Delivery, sums: set[Place]) -> bool:
    """Whether the sum a delivery was masked for accepts it; clear deliveries belong to no sum."""
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
    """Return the outcome of one delivery; accepted ones are added to `taken`.

    `counted` is the digest of an update accepted for the same work in an earlier round.
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
        f"another update of {delivery.device_id} is stored for round {delivery.round}; send one update a round"
    )
