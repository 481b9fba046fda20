"""Work items of devices, and the updates they deliver."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from coterie.records.enums import (
    EventKind,
    Form,
    ParticipationState,
    Reception,
    RoundState,
    SumState,
    TaskState,
)
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.records import Delivery, Event
from services.aggregation.errors import (
    BadMaskedUpdate,
    BadUpdate,
    MetricsNotTaken,
    NotInRound,
    NotJudged,
    RoundOver,
    SumOver,
    TermsChanged,
    UnknownTask,
    UpdateTooLarge,
)
from services.aggregation.rounds.conductor import ROUND
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.round_registry import RoundRegistry
from services.aggregation.secure_sums.duty_index import DutyIndex
from services.aggregation.store import models, rounds, tasks
from services.aggregation.usecases.late_updates import LateUpdates
from services.aggregation.usecases.quota import Quota
from services.aggregation.usecases.waiting import latest
from services.kit.database.blobs import check_digest
from services.kit.database.engine import Database
from services.kit.errors import CoterieError, Unavailable
from services.kit.notify.notifier import Notifier
from services.kit.notify.replica_notifier import ReplicaNotifier
from services.kit.rpc.principal import require_device
from services.kit.runtime.clock import Clock

MAX_METRICS = 32


class WorkUseCases:
    """What devices may ask for."""

    def __init__(
        self,
        database: Database,
        open_rounds: RoundRegistry,
        intake: Intake,
        notifier: Notifier,
        replica_notifier: ReplicaNotifier,
        clock: Clock,
        quota: Quota,
        duty_index: DutyIndex,
    ) -> None:
        self._database, self._open_rounds, self._intake, self._duty_index = database, open_rounds, intake, duty_index
        self._late_updates = LateUpdates(database, open_rounds, notifier, clock)
        self._notifier, self._replica_notifier, self._clock, self._quota = notifier, replica_notifier, clock, quota

    async def get_work(
        self, device_id: str, wait_seconds: float, task_ids: Sequence[str], *, clerk: bool = False
    ) -> tuple[list[pb.WorkItem], dict[str, TaskState]]:
        """Work items waiting for a device, and which of the tasks it asks about have ended.

        With `clerk`, it is not waited for them when the device is called as a clerk.
        """
        require_device(device_id)
        deadline = latest(self._clock, wait_seconds)
        keys = [f"device:{device_id}", *(f"ended:{task_id}" for task_id in task_ids)]
        keys += [f"duties:{device_id}"] if clerk else []
        while True:
            with self._notifier.subscribe(*keys) as subscription:
                items = self._items(device_id, task_ids)
                if items:
                    return items, {}
                ended = await self._ended(task_ids)
                left = deadline - self._clock.now()
                called = clerk and self.is_called(device_id)
                if called or left <= 0 or (task_ids and len(ended) == len(set(task_ids))):
                    return [], ended
                await subscription.wait(left)

    def is_called(self, device_id: str) -> bool:
        """Whether a device may have duties as a clerk."""
        return device_id in self._duty_index.devices

    def _items(self, device_id: str, task_ids: Sequence[str]) -> list[pb.WorkItem]:
        rounds_open = self._open_rounds.by_task
        asked = dict.fromkeys(task_ids) if task_ids else rounds_open
        result = [rounds_open[task_id] for task_id in asked if task_id in rounds_open]
        waiting = [open_round.work_of(device_id) for open_round in result if not open_round.is_full]
        return [item for item in waiting if item is not None] or self._open_rounds.measuring.items(device_id, task_ids)

    async def _ended(self, task_ids: Sequence[str]) -> dict[str, TaskState]:
        doubtful = [task_id for task_id in task_ids if task_id not in self._open_rounds.running]
        if not doubtful:
            return {}
        async with self._database.reading() as tx:
            states = await tasks.task_states(tx, doubtful)
        return {task_id: state for task_id, state in states.items() if state.has_ended}

    # --- updates -----------------------------------------------------------------------------------------------------

    async def admit(self, task_id: str, number: int, device_id: str, digest: str, size_bytes: int) -> tuple[int, bool]:
        """Return the largest body accepted now, and whether this update is stored; raise when it would be refused."""
        require_device(device_id)
        check_digest(digest)
        open_round = self._open_rounds.get(task_id)
        if open_round is None or open_round.round.number != number:
            carried = await self._late_updates.rebase(_asked(task_id, number, device_id, digest))
            if carried is None:
                return await self._admit_late(task_id, number, device_id, digest)
            open_round = carried[0]
        if not await self._has_part(open_round, device_id):
            raise NotInRound(f"device {device_id} has no part in round {number}; ask for work first")
        most = open_round.max_update_bytes(device_id)
        if size_bytes > most:
            raise _too_large(size_bytes, most)
        if open_round.roster.states[device_id] is ParticipationState.DELIVERED:
            async with self._database.reading() as tx:
                states = await rounds.states_of(tx, task_id, number, [device_id])
            return most, device_id in states and states[device_id][1] == digest
        await self._quota.check(device_id, size_bytes or most)
        return most, False

    async def _has_part(self, open_round: OpenRound, device_id: str) -> bool:
        """Whether a device has a part in a round; one that joined just now may have got its work elsewhere."""
        if device_id not in open_round.roster.states and open_round.buffering is not None:
            await self._open_rounds.late_joiners.catch_up(open_round)
        return device_id in open_round.roster.states

    async def _admit_late(self, task_id: str, number: int, device_id: str, digest: str) -> tuple[int, bool]:
        async with self._database.reading() as tx:
            task = await tasks.find_task(tx, task_id)
            states = await rounds.states_of(tx, task_id, number, [device_id])
        if task is None:
            raise UnknownTask(f"no task {task_id}")
        if device_id not in states:
            raise NotInRound(f"device {device_id} has no part in round {number} of {task_id}")
        if states[device_id][1] == digest:
            return 0, True
        raise RoundOver(f"round {number} is over, the task is in round {task.round}; ask for work again")

    async def submit(self, delivery: Delivery) -> tuple[Reception, int]:
        """Accept an update; return its reception and the task's round. Deletes refused bytes."""
        require_device(delivery.device_id)
        try:
            _check(delivery)
            outcome, number = await self._submit(delivery)
        except Unavailable:
            raise  # it will be sent again
        except CoterieError:
            await self._intake.discard(delivery.digest)
            raise
        if outcome is Reception.LATE:
            await self._intake.discard(delivery.digest)
        return outcome, number

    async def _submit(self, delivery: Delivery) -> tuple[Reception, int]:
        """Accept an update where it counts: in its round, or in the open buffer of an asynchronous task."""
        open_round, began = self._open_rounds.get(delivery.task_id), self._clock.now()
        carried = (
            (open_round, delivery) if open_round is not None and open_round.round.number == delivery.round else None
        )
        if carried is None:
            carried = await self._late_updates.rebase(delivery)
        while carried is not None:
            open_round, rebased = carried
            outcome = await self._take(open_round, rebased)
            if outcome is not Reception.LATE or open_round.buffering is None:
                return outcome, open_round.round.number
            carried = await self._late_updates.rebase(delivery, after=open_round.round.number, since=began)
        return await self._submit_late(delivery)

    async def _take(self, open_round: OpenRound, delivery: Delivery) -> Reception:
        if not await self._has_part(open_round, delivery.device_id):
            raise NotInRound(f"device {delivery.device_id} has no part in round {delivery.round}; ask for work first")
        if delivery.form is not Form.REPORT:
            self._check_fit(open_round, delivery)
        if not open_round.is_clear(delivery.device_id) or delivery.form is Form.MASKED:
            check_masked(open_round, delivery)
        else:
            figures = open_round.strategy.delivery.take_clip_share(open_round.roster, delivery)
            open_round.strategy.delivery.require_public_metrics(figures, is_public=delivery.public_metrics)
            open_round.strategy.delivery.require_valid(open_round.roster, delivery)
            delivery = replace(delivery, weight=open_round.strategy.delivery.weight(open_round.roster, delivery))
        await self._check_letter(open_round, delivery)
        return await self._intake.take(open_round, delivery)

    def _check_fit(self, open_round: OpenRound, delivery: Delivery) -> None:
        most = open_round.max_update_bytes(delivery.device_id)
        if delivery.size_bytes > most:
            raise _too_large(delivery.size_bytes, most)
        if not 0 <= delivery.model_index < len(open_round.bases):
            raise BadUpdate(f"model_index must be from 0 to {len(open_round.bases) - 1}, not {delivery.model_index}")

    async def _check_letter(self, open_round: OpenRound, delivery: Delivery) -> None:
        recipient, senders = open_round.strategy.delivery.required_letters(open_round.roster, delivery)
        if not senders:
            return
        plan = open_round.roster.items[delivery.device_id].plan_version
        async with self._database.reading() as tx:
            letters = await models.list_letters(tx, delivery.task_id, delivery.round, recipient)
        missing = sorted(set(senders) - {x.sender for x in letters if x.plan_version == plan})
        if missing and recipient == delivery.device_id:
            message = f"no letter of {', '.join(missing)[:200]} came: count only members whose letter you opened"
            raise open_round.strategy.delivery.plan_mismatch(open_round.roster, message)
        if missing:
            raise RoundOver(
                f"no letter of {delivery.device_id} to {recipient} under plan {plan} is here; ask for work again"
            )

    async def _submit_late(self, delivery: Delivery) -> tuple[Reception, int]:
        """Answer an update for a round that is not open here: repeated, late, or refused."""
        async with self._database.reading() as tx:
            task = await tasks.find_task(tx, delivery.task_id)
            round_ = await rounds.find_round(tx, delivery.task_id, delivery.round)
            states = await rounds.states_of(tx, delivery.task_id, delivery.round, [delivery.device_id])
        if task is None:
            raise UnknownTask(f"no task {delivery.task_id}")
        if round_ is None or delivery.device_id not in states:
            raise NotInRound(f"device {delivery.device_id} has no part in round {delivery.round}; ask for work first")
        state, digest = states[delivery.device_id]
        if state in (ParticipationState.DELIVERED, ParticipationState.IDLE) and digest == delivery.digest:
            return Reception.REPEATED, task.round
        if round_.state is RoundState.OPEN:
            raise RoundOver("the round is just being opened or closed; ask for work again")
        return Reception.LATE, task.round

    async def decline(
        self, task_id: str, number: int, device_id: str, why: str, strangers: Sequence[str] = (), terms: str = ""
    ) -> None:
        """Record that a device will not deliver; this does not count against it unless its update was refused before.

        `strangers` are peers or clerks it would have to tell something that its owner keeps from those it does not
        know. `terms` are those of the secure sum it declines: where a new session has others, it has not declined.
        """
        require_device(device_id)
        open_round = self._open_rounds.get(task_id)
        if await self._late_updates.was_asked(task_id, number, device_id):
            return  # it has work of a newer version already, which it may take or decline
        if open_round is None or open_round.round.number != number or device_id not in open_round.roster.states:
            raise NotInRound(f"device {device_id} has no open work in round {number} of {task_id}")
        session = open_round.session_of(device_id)
        present = session.read_terms if session is not None and session.terms else None
        if terms and (present is None or present.digest.hex() != terms):
            return
        note = (why or "declined")[:500]
        met = {peer.device_id for peer in open_round.roster.items[device_id].peers}
        met |= {clerk.device for clerk in present.clerks} if present is not None else set()
        async with self._database.writing() as tx:
            await tasks.add_strangers(tx, task_id, device_id, sorted(met.intersection(strangers)))
            state = await rounds.decline(tx, task_id, number, device_id, note)
            if state is ParticipationState.DECLINED:
                now = self._clock.now()
                await tasks.add_events(tx, Event(task_id, now, EventKind.WORK_DECLINED, note, number, device_id))
            stored = f"{ROUND}{task_id}:{self._intake.replica}"
            await self._replica_notifier.carry(tx, f"task:{task_id}", f"letters:{task_id}", stored)
        if open_round.roster.states[device_id] is ParticipationState.ASSIGNED:
            open_round.roster.states[device_id] = state
        self._notifier.notify(f"task:{task_id}", f"events:{task_id}", f"letters:{task_id}")

    async def object(self, task_id: str, number: int, device_id: str, why: str) -> None:
        """Record a device's objection to its head's verdict; possible until the next round settles."""
        require_device(device_id)
        objection, now = (why or "objected")[:500], self._clock.now()
        async with self._database.writing() as tx:
            part = await rounds.find_participation(tx, task_id, number, device_id)
            task = await tasks.find_task(tx, task_id)
            following = await rounds.find_round(tx, task_id, number + 1)
            if task is None or part is None:
                raise NotInRound(f"device {device_id} had no part in round {number} of {task_id}")
            if not part.judged_by:
                raise NotJudged(
                    f"no head's word stands against {device_id} in round {number}; there is nothing to dispute"
                )
            if part.objection:
                return
            if task.released or (following is not None and following.state in (RoundState.SETTLING, RoundState.DONE)):
                raise NotJudged(f"the verdicts of round {number} are final; object before the next round has ended")
            await rounds.object_to(tx, task_id, number, device_id, objection)
            message = f"says of {part.judged_by}'s verdict ({part.note}): {objection}"
            await tasks.add_events(tx, Event(task_id, now, EventKind.VERDICT_DISPUTED, message, number, device_id))
        self._notifier.notify(f"task:{task_id}", f"events:{task_id}")


def _asked(task_id: str, number: int, device_id: str, digest: str) -> Delivery:
    """An update that has not come yet, to ask where it would count."""
    return Delivery(task_id, number, device_id, digest, 0, Form.MEAN, 1.0, {}, 0, 0.0, base=number)


def check_metrics(metrics: Mapping[str, float]) -> None:
    """Require at most `MAX_METRICS` metrics with names and finite values."""
    if len(metrics) > MAX_METRICS:
        raise BadUpdate(f"at most {MAX_METRICS} metrics are taken, {len(metrics)} came")
    for name, value in metrics.items():
        if not math.isfinite(value) or not 1 <= len(name) <= 64:
            raise BadUpdate(
                f"metric {name[:64]!r} must have a name of 1 to 64 characters and a finite value, not {value}"
            )


def _check(delivery: Delivery) -> None:
    if delivery.form not in list(Form):
        raise BadUpdate(f"form must be one of {', '.join(Form)}, not {str(delivery.form)!r}")
    if delivery.form is not Form.REPORT:
        check_digest(delivery.digest)
        if not (math.isfinite(delivery.weight) and delivery.weight > 0):
            raise BadUpdate(f"weight must be a finite number above 0, not {delivery.weight}")
    check_metrics(delivery.metrics)
    if not math.isfinite(delivery.budget) or delivery.budget < 0:
        raise BadUpdate(f"budget must be a finite number of at least 0, not {delivery.budget}")


def _too_large(size_bytes: int, most: int) -> UpdateTooLarge:
    return UpdateTooLarge(f"the update has {size_bytes} bytes, at most {most} are taken: send the model's tensors only")


def check_masked(open_round: OpenRound, delivery: Delivery) -> None:
    """Require a masked update under the terms of the device's current sum."""
    is_clear = open_round.is_clear(delivery.device_id)
    if (delivery.form is Form.MASKED) == is_clear:
        wanted = "updates in the clear" if is_clear else "masked words of a secure sum"
        raise BadMaskedUpdate(f"this task takes {wanted}, not a {delivery.form}")
    if delivery.metrics:
        raise MetricsNotTaken("figures are not taken beside a masked update: one device's are no sum; leave them out")
    session = open_round.session_of(delivery.device_id)
    if session is None or not session.terms or session.read_terms.digest.hex() != delivery.terms:
        raise TermsChanged("the update was made under other terms than the present session's; ask for work again")
    if (
        open_round.roster.states[delivery.device_id] is ParticipationState.ASSIGNED
        and session.state is not SumState.OPEN
    ):
        raise SumOver(f"this session is {session.state} and takes no more updates; ask for work again")
    most = open_round.masked_weight(delivery.device_id)
    if delivery.weight > most:
        raise BadMaskedUpdate(f"weight {delivery.weight} is above the {most:g} that the work item gave the device")
    open_round.strategy.delivery.require_paid_budget(open_round.roster.items[delivery.device_id], delivery.budget)
