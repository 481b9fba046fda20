"""Work: what a device is to do, what it hands in, and the letters it sends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from coterie.records.words import EventKind, Form, LetterKind, ParticipationState, Reception, RoundState, TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.records import Delivery, Event, Letter
from services.aggregation.errors import BadUpdate, NotInRound, RoundOver, UnknownTask, UpdateTooLarge
from services.aggregation.rounds.conductor import Conductor
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.live import LiveRound
from services.aggregation.store import models, rounds, tasks
from services.kit.bell import Bell
from services.kit.blobs import check_digest
from services.kit.caller import require_device
from services.kit.clock import Clock
from services.kit.database import Database
from services.kit.errors import InvalidInput
from services.kit.ids import new_id

MAX_WAIT_SECONDS = 30.0
MAX_METRICS = 32


class BadLetter(InvalidInput):
    """The letter is not one this round expects."""


class WorkUseCases:
    """What devices may ask for."""

    def __init__(self, database: Database, conductor: Conductor, intake: Intake, bell: Bell, clock: Clock) -> None:
        self._database, self._conductor, self._intake = database, conductor, intake
        self._bell, self._clock = bell, clock

    async def get_work(
        self, device_id: str, wait_seconds: float, task_ids: Sequence[str]
    ) -> tuple[list[pb.WorkItem], dict[str, TaskState]]:
        """Work items waiting for a device, and which of the tasks it asks about have ended."""
        require_device(device_id)
        deadline = self._clock.now() + min(max(wait_seconds, 0.0), MAX_WAIT_SECONDS)
        while True:
            with self._bell.listen(f"device:{device_id}", *(f"ended:{task_id}" for task_id in task_ids)) as sleeper:
                items = self._items(device_id, task_ids)
                if items:
                    return items, {}
                ended = await self._ended(task_ids)
                left = deadline - self._clock.now()
                if left <= 0 or (task_ids and len(ended) == len(set(task_ids))):
                    return [], ended
                await sleeper.wait(left)

    def _items(self, device_id: str, task_ids: Sequence[str]) -> list[pb.WorkItem]:
        return [
            live.roster.items[device_id]
            for task_id, live in self._conductor.live.items()
            if live.roster.states.get(device_id) is ParticipationState.ASSIGNED
            and (not task_ids or task_id in task_ids)
        ]

    async def _ended(self, task_ids: Sequence[str]) -> dict[str, TaskState]:
        doubtful = [task_id for task_id in task_ids if task_id not in self._conductor.running]
        if not doubtful:
            return {}
        async with self._database.reading() as tx:
            states = await tasks.task_states(tx, doubtful)
        return {task_id: state for task_id, state in states.items() if state.has_ended}

    # --- updates -----------------------------------------------------------------------------------------------------

    async def admit(self, task_id: str, number: int, device_id: str, digest: str, size_bytes: int) -> tuple[int, bool]:
        """Largest body taken now, and whether this very update is stored already; raises when none would be taken."""
        require_device(device_id)
        check_digest(digest)
        live = self._conductor.live.get(task_id)
        if live is None or live.round.number != number:
            return await self._admit_late(task_id, number, device_id, digest)
        if device_id not in live.roster.states:
            raise NotInRound(f"device {device_id} has no part in round {number}; ask for work first")
        if size_bytes > live.max_update_bytes:
            raise _too_large(size_bytes, live)
        if live.roster.states[device_id] is ParticipationState.DELIVERED:
            async with self._database.reading() as tx:
                states = await rounds.states_of(tx, task_id, number, [device_id])
            return live.max_update_bytes, device_id in states and states[device_id][1] == digest
        return live.max_update_bytes, False

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
        """Takes an update in; what became of it, and the round the task is in. Bytes nobody needs are forgotten."""
        require_device(delivery.device_id)
        _check(delivery)
        try:
            outcome, number = await self._submit(delivery)
        except InvalidInput:
            await self._intake.discard(delivery.digest)
            raise
        if outcome is Reception.LATE:
            await self._intake.discard(delivery.digest)
        return outcome, number

    async def _submit(self, delivery: Delivery) -> tuple[Reception, int]:
        live = self._conductor.live.get(delivery.task_id)
        if live is None or live.round.number != delivery.round:
            return await self._submit_late(delivery)
        if delivery.device_id not in live.roster.states:
            raise NotInRound(f"device {delivery.device_id} has no part in round {delivery.round}; ask for work first")
        if delivery.form is not Form.REPORT:
            self._check_fit(live, delivery)
        live.way.check_delivery(live.roster, delivery)
        await self._check_letter(live, delivery)
        return await self._intake.take(live, delivery), live.round.number

    def _check_fit(self, live: LiveRound, delivery: Delivery) -> None:
        if delivery.size_bytes > live.max_update_bytes:
            raise _too_large(delivery.size_bytes, live)
        if not 0 <= delivery.model_index < len(live.bases):
            raise BadUpdate(f"model_index must be from 0 to {len(live.bases) - 1}, not {delivery.model_index}")

    async def _check_letter(self, live: LiveRound, delivery: Delivery) -> None:
        recipient = live.way.letter_first(live.roster, delivery)
        if not recipient:
            return
        plan = live.roster.items[delivery.device_id].plan_version
        async with self._database.reading() as tx:
            letters = await models.list_letters(tx, delivery.task_id, delivery.round, recipient)
        if not any(x.sender == delivery.device_id and x.plan_version == plan for x in letters):
            raise RoundOver(
                f"no letter of {delivery.device_id} to {recipient} under plan {plan} is here; ask for work again"
            )

    async def _submit_late(self, delivery: Delivery) -> tuple[Reception, int]:
        """An update for a round that is not open here: known, late, or nobody's."""
        async with self._database.reading() as tx:
            task = await tasks.find_task(tx, delivery.task_id)
            round_ = await rounds.find_round(tx, delivery.task_id, delivery.round)
            states = await rounds.states_of(tx, delivery.task_id, delivery.round, [delivery.device_id])
        if task is None:
            raise UnknownTask(f"no task {delivery.task_id}")
        if round_ is None or delivery.device_id not in states:
            raise NotInRound(f"device {delivery.device_id} has no part in round {delivery.round}; ask for work first")
        if states[delivery.device_id] == (ParticipationState.DELIVERED, delivery.digest):
            return Reception.REPEATED, task.round
        if round_.state is RoundState.OPEN:
            raise RoundOver("the round is just being opened or closed; ask for work again")
        return Reception.LATE, task.round

    async def decline(self, task_id: str, number: int, device_id: str, why: str) -> None:
        """The device will not deliver this round; it is not held against it, unless its update was refused before."""
        require_device(device_id)
        live = self._conductor.live.get(task_id)
        if live is None or live.round.number != number or device_id not in live.roster.states:
            raise NotInRound(f"device {device_id} has no open work in round {number} of {task_id}")
        note = (why or "declined")[:500]
        async with self._database.writing() as tx:
            state = await rounds.decline(tx, task_id, number, device_id, note)
            if state is ParticipationState.DECLINED:
                now = self._clock.now()
                await tasks.add_events(tx, Event(task_id, now, EventKind.WORK_DECLINED, note, number, device_id))
        if live.roster.states[device_id] is ParticipationState.ASSIGNED:
            live.roster.states[device_id] = state
        self._bell.ring(f"task:{task_id}", f"events:{task_id}", f"letters:{task_id}")

    # --- letters -----------------------------------------------------------------------------------------------------

    async def send_letter(self, letter: Letter) -> Letter:
        """Stores a letter between two devices that work together in an open round."""
        require_device(letter.sender)
        check_digest(letter.digest)
        live = self._conductor.live.get(letter.task_id)
        if live is None or live.round.number != letter.round:
            raise RoundOver(f"round {letter.round} of {letter.task_id} is not open; ask for work again")
        if letter.kind not in list(LetterKind):
            raise BadLetter(f"kind must be one of {', '.join(LetterKind)}, not {str(letter.kind)!r}")
        item = live.roster.items.get(letter.sender)
        if item is not None and letter.plan_version != item.plan_version:
            raise RoundOver(f"plan {letter.plan_version} is replaced by plan {item.plan_version}; ask for work again")
        if item is None or letter.recipient not in {peer.device_id for peer in item.peers}:
            raise BadLetter(f"the plan has no link from {letter.sender} to {letter.recipient} in this round")
        async with self._database.writing() as tx:
            stored = await models.add_letter(tx, replace(letter, id=new_id("let"), sent_at=self._clock.now()))
        if stored.digest != letter.digest:
            raise BadLetter(f"another letter to {letter.recipient} is stored for this round; letters are not replaced")
        self._bell.ring(f"letters:{letter.task_id}:{letter.recipient}")
        return stored

    async def list_letters(
        self, task_id: str, number: int, device_id: str, known: Sequence[str], wait_seconds: float
    ) -> tuple[list[Letter], RoundState, list[str]]:
        """Letters to a device not known yet, the round's state, and peers that will send nothing more."""
        require_device(device_id)
        deadline = self._clock.now() + min(max(wait_seconds, 0.0), MAX_WAIT_SECONDS)
        seen = set(known)
        while True:
            with self._bell.listen(f"letters:{task_id}", f"letters:{task_id}:{device_id}") as sleeper:
                async with self._database.reading() as tx:
                    found = [x for x in await models.list_letters(tx, task_id, number, device_id) if x.id not in seen]
                    round_ = await rounds.find_round(tx, task_id, number)
                state = RoundState.UNKNOWN if round_ is None else round_.state
                left = deadline - self._clock.now()
                if found or state is not RoundState.OPEN or left <= 0:
                    return found, state, self._gone(task_id, number)
                await sleeper.wait(left)

    def _gone(self, task_id: str, number: int) -> list[str]:
        live = self._conductor.live.get(task_id)
        if live is None or live.round.number != number:
            return []
        out = (ParticipationState.DECLINED, ParticipationState.DROPPED)
        return [device for device, state in live.roster.states.items() if state in out]


def _check(delivery: Delivery) -> None:
    if delivery.form not in list(Form):
        raise BadUpdate(f"form must be one of {', '.join(Form)}, not {str(delivery.form)!r}")
    if delivery.form is not Form.REPORT:
        check_digest(delivery.digest)
        if not (math.isfinite(delivery.weight) and delivery.weight > 0):
            raise BadUpdate(f"weight must be a finite number above 0, not {delivery.weight}")
    if len(delivery.metrics) > MAX_METRICS:
        raise BadUpdate(f"at most {MAX_METRICS} metrics are taken, {len(delivery.metrics)} came")
    for name, value in delivery.metrics.items():
        if not math.isfinite(value) or not 1 <= len(name) <= 64:
            raise BadUpdate(
                f"metric {name[:64]!r} must have a name of 1 to 64 characters and a finite value, not {value}"
            )
    if not math.isfinite(delivery.budget) or delivery.budget < 0:
        raise BadUpdate(f"budget must be a finite number of at least 0, not {delivery.budget}")


def _too_large(size_bytes: int, live: LiveRound) -> UpdateTooLarge:
    return UpdateTooLarge(
        f"the update has {size_bytes} bytes, at most {live.max_update_bytes} are taken: send the model's tensors only"
    )
