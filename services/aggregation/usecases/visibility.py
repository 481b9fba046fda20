"""Which tasks a caller may see: publishers their own, devices those they may join or are enrolled in, admins all.

A device sees of a task what it needs to join it; the inside of a task (rounds, models) only once it is enrolled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from services.aggregation.domain.joining import may_join
from services.aggregation.domain.records import Task
from services.aggregation.errors import NotInvited, NotYourTask, UnknownTask
from services.aggregation.store import tasks
from services.kit.database.rows import Tx
from services.kit.rpc.principal import Principal, current_principal, require_role


@dataclass(frozen=True, slots=True)
class Scope:
    """Filter of a list of tasks; empty and None mean no filter."""

    publisher: str = ""
    joinable: tuple[str, str] | None = None


def scope() -> Scope:
    """Return the filter of the caller's lists of tasks."""
    caller = require_role("publisher", "device", "admin")
    if caller.role == "publisher":
        return Scope(publisher=caller.subject)
    return Scope(joinable=(caller.subject, caller.owner_id)) if caller.role == "device" else Scope()


async def see_task(tx: Tx, task_id: str, *, lock: bool = False) -> Task:
    """A task the caller may know of."""
    return await _see(tx, task_id, inside=False, lock=lock)


async def see_inside(tx: Tx, task_id: str) -> Task:
    """A task whose rounds and models the caller may know of."""
    return await _see(tx, task_id, inside=True, lock=False)


async def _see(tx: Tx, task_id: str, *, inside: bool, lock: bool) -> Task:
    caller = require_role("publisher", "device", "admin")
    task = await tasks.find_task(tx, task_id, lock=lock)
    if task is None:
        raise UnknownTask(f"no task {task_id}; list them with GET /v1/tasks")
    if caller.role == "publisher" and caller.subject != task.publisher:
        raise NotYourTask(f"task {task_id} belongs to another publisher; use that publisher's key")
    if caller.role == "device":
        await _require_part(tx, task, caller, inside)
    return task


async def _require_part(tx: Tx, task: Task, caller: Principal, inside: bool) -> None:
    spec = task.specification
    if not inside and may_join(spec.join_by, spec.invited, caller.subject, caller.owner_id):
        return
    if await tasks.find_enrolment(tx, task.id, caller.subject) is None:
        why = "its rounds and models are for devices that joined it" if inside else f"it is for certain {spec.join_by}"
        raise NotInvited(f"task {task.id} is not open to {caller.subject}: {why}; ask its publisher")


def visible_task(task: Task) -> Task:
    """Return the task as the caller may see it: a device does not learn who else is invited."""
    caller, spec = current_principal(), task.specification
    if caller.role != "device" or not spec.invited:
        return task
    own = tuple(item for item in spec.invited if item in (caller.subject, caller.owner_id))
    return replace(task, specification=replace(spec, invited=own))


def require_invitation(task: Task, device_id: str, owner_id: str) -> None:
    """Raise unless a device of that owner may join."""
    spec = task.specification
    if not may_join(spec.join_by, spec.invited, device_id, owner_id):
        raise NotInvited(
            f"task {task.id} takes certain {spec.join_by} only, and {device_id} is not invited; ask its publisher"
        )
