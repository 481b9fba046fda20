"""The open rounds that a replica has in memory, one per task."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.records.enums import ParticipationState, RoundState
from services.aggregation.domain.records import Round, Task
from services.aggregation.rounds.evaluation import Measuring
from services.aggregation.rounds.late_joiners import LateJoiners
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.secure_sums.coordinator import Coordinator
from services.aggregation.store import models, rounds, sum_sessions
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier


@dataclass
class RoundRegistry:
    """Loads, refreshes and releases open rounds. All of it can be rebuilt from the database."""

    database: Database
    notifier: Notifier
    measuring: Measuring
    late_joiners: LateJoiners
    sum_coordinator: Coordinator
    by_task: dict[str, OpenRound] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    """Tasks that this replica conducts and that have not ended."""

    def get(self, task_id: str) -> OpenRound | None:
        """Return the open round of a task, if this replica has it in memory."""
        return self.by_task.get(task_id)

    async def load(self, task: Task, round_: Round) -> OpenRound:
        """Return the round in memory; load it when this replica sees it for the first time."""
        open_round = self.by_task.get(task.id)
        if open_round is not None and (open_round.round.number, open_round.round.attempt) == (
            round_.number,
            round_.attempt,
        ):
            await self._admit_late_joiners(open_round, round_)
            return open_round
        self.forget(task.id)
        async with self.database.reading() as tx:
            participations = await rounds.list_participations(tx, task.id, round_.number)
            current = await models.latest_models(tx, task.id, before=round_.number)
            sessions = await sum_sessions.latest_sessions(tx, task.id, round_.number)
        open_round = OpenRound(task, round_, participations, [(m.digest, m.size_bytes) for m in current], sessions)
        self.by_task[task.id] = open_round
        await self.measuring.ask_panel(task, round_, open_round.roster.states)
        # Also wakes devices that wait for letters by a plan that this one replaces.
        self.notifier.notify(
            f"events:{task.id}", f"letters:{task.id}", *(f"device:{p.device_id}" for p in participations)
        )
        await self._admit_late_joiners(open_round, round_)
        return open_round

    async def refresh(self, open_round: OpenRound) -> None:
        """Read the states that other replicas have stored; a state that changed here meanwhile stays."""
        before = dict(open_round.roster.states)
        async with self.database.reading() as tx:
            states = await rounds.standings(tx, open_round.task.id, open_round.round.number)
            members = await rounds.members_heard(tx, open_round.task.id, open_round.round.number)
        for device_id, state in states.items():
            if device_id not in open_round.roster.items:
                continue  # it joined meanwhile; the next step adds it
            if open_round.roster.states.get(device_id) is before.get(device_id):
                open_round.roster.states[device_id] = state
            if state is ParticipationState.DELIVERED:
                open_round.roster.record_reports(device_id, members.get(device_id, ()))
        open_round.notice()

    def forget(self, task_id: str) -> None:
        """Release the round of a task and wake all waiters for it."""
        self.measuring.forget(task_id)
        open_round = self.by_task.pop(task_id, None)
        if open_round is not None:
            if not open_round.lock.locked():  # else a late update is being taken out; it releases the sums
                open_round.close()
            self.notifier.notify(f"events:{task_id}", f"letters:{task_id}")
            self.sum_coordinator.release(open_round)

    async def _admit_late_joiners(self, open_round: OpenRound, round_: Round) -> None:
        """In an asynchronous task, devices that joined meanwhile take part in the round at once."""
        if open_round.buffering is None:
            return
        await (
            self.late_joiners.admit(open_round)
            if round_.state is RoundState.OPEN
            else self.late_joiners.catch_up(open_round)
        )
