"""History of tasks: rounds and their participations, events, model versions, and replayed rounds."""

from __future__ import annotations

from coterie.records.enums import ParticipationState
from services.aggregation.domain.records import Event, Model, Participation, ReplayedRound, RoundView
from services.aggregation.errors import UnknownRound
from services.aggregation.rounds.replaying import Replayer
from services.aggregation.store import models, rounds, tasks
from services.aggregation.store.model_files import ModelFiles
from services.aggregation.usecases import visibility
from services.aggregation.usecases.waiting import latest
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import current_principal, require_device, require_role
from services.kit.runtime.clock import Clock


class HistoryUseCases:
    """Queries about past rounds of a task."""

    def __init__(self, database: Database, model_files: ModelFiles, notifier: Notifier, clock: Clock) -> None:
        self._database, self._notifier, self._clock = database, notifier, clock
        self._replayer = Replayer(database, model_files)

    async def list_rounds(self, task_id: str, page: Page) -> list[RoundView]:
        """Rounds of a task in order."""
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            result = await rounds.list_rounds(tx, task_id, page)
            counts = await rounds.count_participations(tx, task_id, [r.number for r in result])
        return [RoundView(r, *counts.get(r.number, (0, 0, 0))) for r in result]

    async def get_round(self, task_id: str, number: int) -> tuple[RoundView, list[Participation]]:
        """Return a round and its participations; a device sees only its own."""
        caller = current_principal()
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            round_ = await rounds.find_round(tx, task_id, number)
            if round_ is None:
                raise UnknownRound(f"task {task_id} has had no round {number}")
            participations = await rounds.list_participations(tx, task_id, number)
        delivered = sum(p.state is ParticipationState.DELIVERED for p in participations)
        visible = [p for p in participations if caller.role != "device" or p.device_id == caller.subject]
        disputed = sum(bool(p.objection) for p in participations)
        return RoundView(round_, len(participations), delivered, disputed), visible

    async def list_participations(self, task_id: str, device_id: str, page: Page) -> list[Participation]:
        """A device's part in each round of a task; a device may ask for its own only."""
        if require_role("publisher", "admin", "device").role == "device":
            require_device(device_id)
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            return await rounds.list_device_participations(tx, task_id, device_id, page)

    async def list_events(self, task_id: str, *, after: int, limit: int, wait_seconds: float) -> list[Event]:
        """Return events after a number; wait for the first."""
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
        deadline = latest(self._clock, wait_seconds)
        while True:
            with self._notifier.subscribe(f"events:{task_id}", f"task:{task_id}") as subscription:
                async with self._database.reading() as tx:
                    result = await tasks.list_events(tx, task_id, after=after, limit=limit)
                left = deadline - self._clock.now()
                if result or left <= 0:
                    return result
                await subscription.wait(min(left, 1.0))

    async def replay(self, task_id: str, page: Page) -> list[ReplayedRound]:
        """Recompute rounds of a task from their stored updates, for its publisher to compare."""
        require_role("publisher", "admin")
        async with self._database.reading() as tx:
            task = await visibility.see_inside(tx, task_id)
            result = await rounds.list_rounds(tx, task_id, page)
        return [await self._replayer.replay(task, round_) for round_ in result]

    async def list_models(self, task_id: str, page: Page) -> list[Model]:
        """Model versions of a task."""
        async with self._database.reading() as tx:
            await visibility.see_inside(tx, task_id)
            return await models.list_models(tx, task_id, page)
