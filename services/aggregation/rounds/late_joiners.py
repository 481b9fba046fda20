"""Devices that join while an asynchronous round is open: each gets work at once.

The database says who takes part in a round; memory follows it. So a crash anywhere repeats the step, and of several
replicas the first one to commit gives the work, and the others read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.records.enums import EnrolmentState, EventKind, RoundState, TaskState
from services.aggregation.domain.accumulator import choose_scale
from services.aggregation.domain.records import Enrolment, Event, Participation
from services.aggregation.rounds.assignment import make_items, participations_of
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.rounds.opening import Opener
from services.aggregation.rounds.round_inputs import RoundInputs, key_of
from services.aggregation.store import models, rounds, tasks
from services.kit.database.engine import Database
from services.kit.errors import CoterieError
from services.kit.notify.notifier import Notifier
from services.kit.observability.logs import get_logger
from services.kit.runtime.clock import Clock

NAMED = 3
"""Late joiners that an event names."""
_log = get_logger()


@dataclass(frozen=True, slots=True)
class LateJoiners:
    """Give late joiners work in open rounds."""

    database: Database
    opener: Opener
    notifier: Notifier
    clock: Clock

    async def admit(self, open_round: OpenRound) -> None:
        """Give work to devices that enrolled since the round was planned, and add all new participants.

        If another service is unavailable or has no offer for them, they get work in the next round.
        """
        async with self.database.reading() as tx:
            waiting = await tasks.list_newcomers(tx, open_round.task.id, open_round.round.number)
        if waiting and not open_round.is_full:
            try:
                await self._give_work(open_round, waiting)
            except CoterieError as error:
                _log.warning("late joiners wait for the next round", task=open_round.task.id, reason=error.reason)
        await self.catch_up(open_round)

    async def catch_up(self, open_round: OpenRound) -> None:
        """Add devices that got work in a round after it was loaded."""
        place = (open_round.task.id, open_round.round.number)
        async with self.database.reading() as tx:
            counts = await rounds.count_participations(tx, place[0], [place[1]])
            if counts.get(place[1], (0, 0, 0))[0] == len(open_round.roster.items):
                return
            participations = await rounds.list_participations(tx, *place)
        self.notifier.notify(*(f"device:{device}" for device in open_round.admit(participations)))

    async def _give_work(self, open_round: OpenRound, waiting: Sequence[Enrolment]) -> None:
        task, number, strategy = open_round.task, open_round.round.number, open_round.strategy
        result = await self.opener.active_devices(waiting)
        fresh = result.keys() - open_round.roster.items.keys()
        before = len(open_round.roster.items)
        if not fresh or choose_scale(before + len(fresh), 1.0) != choose_scale(before, 1.0):
            return  # in the last case the scale of the round's sums leaves too few bits for more devices
        async with self.database.reading() as tx:
            enrolled = await tasks.list_enrolments(tx, task.id, state=EnrolmentState.ACTIVE)
            current = await models.latest_models(tx, task.id, before=number)
            previous = await models.latest_models(tx, task.id, before=number - 1) if number > 1 else []
        assignments = [
            assignment
            for assignment in enrolled
            if assignment.device_id in open_round.roster.items or assignment.device_id in fresh
        ]
        devices = await self.opener.active_devices(assignments)
        assignments = [assignment for assignment in assignments if assignment.device_id in devices]
        inputs = RoundInputs(assignments, devices, current, previous, strategy.terms.bounds, {}, {})
        key = f"{number}.{open_round.round.attempt}+{key_of(inputs.samples)}"
        plan = strategy.round_plan.adapt(await self.opener.plan(task, number, key, inputs))
        quote = await self.opener.quote(task, number, assignments, inputs)
        trust_weight = await self.opener.trust_weight(task, [assignment.device_id for assignment in assignments])
        round_ = replace(open_round.round, plan_version=plan.version)
        items = make_items(task, round_, plan, quote, devices, trust_weight, current, previous)
        theirs = {device: item for device, item in items.items() if device in fresh}
        await self._store(open_round, plan.version, participations_of(round_, plan, theirs, devices, inputs.samples))

    async def _store(self, open_round: OpenRound, plan_version: int, participations: Sequence[Participation]) -> None:
        """Add the devices that do not take part yet, if the round is still the attempt planned for."""
        task_id, number, now = open_round.task.id, open_round.round.number, self.clock.now()
        async with self.database.writing() as tx:
            task = await tasks.find_task(tx, task_id, lock=True)
            round_ = await rounds.find_round(tx, task_id, number, lock=True)
            if task is None or task.state is not TaskState.RUNNING or round_ is None:
                return
            if round_.state is not RoundState.OPEN or round_.attempt != open_round.round.attempt:
                return
            known = await rounds.standings(tx, task_id, number)
            fresh = [p for p in participations if p.device_id not in known]
            if not fresh:
                return
            await rounds.add_participations(tx, fresh)
            await rounds.change_round(tx, task_id, number, expected=RoundState.OPEN, plan_version=plan_version)
            await tasks.change_task(tx, task_id)
            names = ", ".join(p.device_id for p in fresh[:NAMED])
            more = f" and {len(fresh) - NAMED} more" if len(fresh) > NAMED else ""
            message = f"round {number} is open for {names}{more} too, who joined meanwhile"
            await tasks.add_events(tx, Event(task_id, now, EventKind.ROUND_REOPENED, message, number))
        self.notifier.notify(f"events:{task_id}")
