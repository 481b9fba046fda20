"""End a task: its state, its open round and the event, in the caller's transaction."""

from __future__ import annotations

from coterie.records.enums import EventKind, SumState, TaskState
from services.aggregation.domain.records import Event
from services.aggregation.store import rounds, sum_sessions, tasks
from services.kit.database.rows import Tx

_EVENT_OF = {
    TaskState.FINISHED: EventKind.TASK_FINISHED,
    TaskState.FAILED: EventKind.TASK_FAILED,
    TaskState.CANCELLED: EventKind.TASK_CANCELLED,
}


async def end_task(tx: Tx, task_id: str, state: TaskState, reason: str, now: float) -> None:
    """End a task that has not ended; its current round fails unless it is done."""
    task = await tasks.find_task(tx, task_id, lock=True)
    if task is None or task.ended:
        return
    # A task that never ran has no escrow to release.
    released = task.state is TaskState.CREATED
    await tasks.change_task(tx, task_id, state=state, reason=reason, ended_at=now, released=released)
    await rounds.abandon_round(tx, task_id, task.round, now)
    await sum_sessions.end_sessions(tx, task_id, task.round, SumState.FAILED, only=sum_sessions.UNDER_WAY)
    await tasks.add_events(tx, Event(task_id, now, _EVENT_OF[state], reason, task.round))
