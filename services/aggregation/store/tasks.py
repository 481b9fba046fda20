"""Tasks, their enrolments and their event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache, lru_cache
from typing import Any

import orjson
import sqlalchemy as sa

from coterie.records.enums import EnrolmentState, EventKind, JoinBy, PrivacyUnit, RoundMode, TaskState
from services.aggregation import tables as t
from services.aggregation.domain.records import Enrolment, Event, Task
from services.aggregation.domain.stopping import Stop
from services.aggregation.domain.tasks import TaskSpecification
from services.kit.database.rows import Tx, columns, fetch_all, fetch_one, upsert
from services.kit.observability.logs import get_logger
from services.kit.observability.metrics import EVENTS_TOTAL
from services.kit.rpc.paging import Page

_log = get_logger()
for _kind in EventKind:  # counted from 0: the first of a kind would be no increase where nothing was before
    EVENTS_TOTAL.labels(_kind)
_TASKS: sa.Select[Any] = sa.select(*columns(Task, t.tasks))
_ENROLMENTS: sa.Select[Any] = sa.select(*columns(Enrolment, t.enrolments))
_EVENTS: sa.Select[Any] = sa.select(*columns(Event, t.events))
# Precompiled: building a hot statement costs more than running it.
_TASK = _TASKS.where(t.tasks.c.id == sa.bindparam("p_task"))
_TASK_LOCKED = _TASK.with_for_update()
_ADD_EVENTS = t.events.insert()
_ENROLLED = _ENROLMENTS.where(
    t.enrolments.c.task_id == sa.bindparam("p_task"), t.enrolments.c.state == sa.bindparam("p_state")
).order_by(t.enrolments.c.device_id)
_COUNT_ENROLLED = (
    sa.select(t.enrolments.c.task_id, sa.func.count())
    .where(
        t.enrolments.c.task_id.in_(sa.bindparam("tasks", expanding=True)),
        t.enrolments.c.state == EnrolmentState.ACTIVE,
    )
    .group_by(t.enrolments.c.task_id)
)
_STATES = sa.select(t.tasks.c.id, t.tasks.c.state).where(t.tasks.c.id.in_(sa.bindparam("tasks", expanding=True)))
_STRANGERS = (
    sa.select(t.strangers.c.device_id, t.strangers.c.stranger_id)
    .where(t.strangers.c.task_id == sa.bindparam("p_task"))
    .order_by(*t.strangers.c)
)
_FORGET_STRANGERS = t.strangers.delete().where(
    t.strangers.c.task_id == sa.bindparam("p_task"), t.strangers.c.device_id == sa.bindparam("p_device")
)
_MAY_READ: sa.Select[Any] = (
    sa.select(sa.literal_column("1"))
    .select_from(t.models.join(t.enrolments, t.models.c.task_id == t.enrolments.c.task_id))
    .where(
        t.models.c.digest == sa.bindparam("p_digest"),
        t.models.c.line >= 0,
        t.enrolments.c.device_id == sa.bindparam("p_device"),
    )
    .limit(sa.literal_column("1"))
)


async def add_task(tx: Tx, task: Task) -> None:
    """Stores a new task."""
    spec = task.specification
    row = asdict(task) | {"name": spec.name, "join_by": spec.join_by}
    await tx.execute(t.tasks.insert(), [row])
    if spec.invited:
        await tx.execute(t.invitations.insert(), [{"task_id": task.id, "invited": item} for item in spec.invited])


async def find_task(tx: Tx, task_id: str, *, lock: bool = False) -> Task | None:
    """One task, locked against other writers with `lock`."""
    return await fetch_one(tx, _TASK_LOCKED if lock else _TASK, _task, {"p_task": task_id})


async def find_task_named(tx: Tx, publisher: str, name: str) -> Task | None:
    """A publisher's task of that name."""
    return await fetch_one(tx, _TASKS.where(t.tasks.c.publisher == publisher, t.tasks.c.name == name), _task)


async def list_tasks(
    tx: Tx, page: Page, *, state: TaskState, publisher: str, name: str = "", joinable: tuple[str, str] | None = None
) -> list[Task]:
    """Tasks, newest first; the cursor is a task's id.

    With `joinable`, a device's id and its owner's, only tasks it may join or is enrolled in.
    """
    query = _TASKS.order_by(t.tasks.c.id.desc()).limit(page.limit)
    if state:
        query = query.where(t.tasks.c.state == state)
    if publisher:
        query = query.where(t.tasks.c.publisher == publisher)
    if name:
        query = query.where(t.tasks.c.name == name)
    if joinable is not None:
        query = query.where(_open_to(*joinable))
    if page.cursor:
        query = query.where(t.tasks.c.id < page.cursor)
    return await fetch_all(tx, query, _task)


def _open_to(device_id: str, owner_id: str) -> sa.ColumnElement[bool]:
    i, e = t.invitations.c, t.enrolments.c
    invited = sa.exists().where(i.task_id == t.tasks.c.id, i.invited.in_((device_id, owner_id)))
    enrolled = sa.exists().where(e.task_id == t.tasks.c.id, e.device_id == device_id)
    return sa.or_(t.tasks.c.join_by == JoinBy.OPEN, invited, enrolled)


async def task_states(tx: Tx, task_ids: Sequence[str]) -> dict[str, TaskState]:
    """State of each of these tasks that exists."""
    return {row.id: row.state for row in await tx.execute(_STATES, {"tasks": list(task_ids)})}


async def change_task(tx: Tx, task_id: str, **values: Any) -> None:
    """Changes columns of a task and counts its revision up."""
    await tx.execute(_changing(*values), {"p_task": task_id} | values)


@cache
def _changing(*names: str) -> sa.Update:
    changed: dict[str, Any] = {name: sa.bindparam(name) for name in names} | {"revision": t.tasks.c.revision + 1}
    return t.tasks.update().where(t.tasks.c.id == sa.bindparam("p_task")).values(changed)


async def revisions(tx: Tx) -> dict[str, int]:
    """Revision of every task that needs conducting: running ones, and ended ones whose escrow is not released."""
    c = t.tasks.c
    ended = sa.and_(c.state != TaskState.CREATED, sa.not_(c.released))
    query = sa.select(c.id, c.revision).where(sa.or_(c.state == TaskState.RUNNING, ended))
    return dict((await tx.execute(query)).all())


async def put_enrolment(tx: Tx, enrolment: Enrolment) -> None:
    """Stores an enrolment, replacing the device's earlier one; whom it called strangers is forgotten with it."""
    await upsert(tx, t.enrolments, [asdict(enrolment)], ["task_id", "device_id"])
    await tx.execute(_FORGET_STRANGERS, {"p_task": enrolment.task_id, "p_device": enrolment.device_id})


async def add_strangers(tx: Tx, task_id: str, device_id: str, strangers: Sequence[str]) -> None:
    """Keeps which devices of a task another one will not share with."""
    rows = [{"task_id": task_id, "device_id": device_id, "stranger_id": stranger} for stranger in strangers]
    if rows:
        await upsert(tx, t.strangers, rows, ["task_id", "device_id", "stranger_id"])


async def list_strangers(tx: Tx, task_id: str) -> dict[str, list[str]]:
    """Whom each device of a task will not share with."""
    result: dict[str, list[str]] = {}
    for device_id, stranger_id in await tx.execute(_STRANGERS, {"p_task": task_id}):
        result.setdefault(device_id, []).append(stranger_id)
    return result


async def find_enrolment(tx: Tx, task_id: str, device_id: str) -> Enrolment | None:
    """A device's enrolment in a task."""
    query = _ENROLMENTS.where(t.enrolments.c.task_id == task_id, t.enrolments.c.device_id == device_id)
    return await fetch_one(tx, query, Enrolment)


async def list_enrolments(
    tx: Tx, task_id: str, page: Page | None = None, *, state: EnrolmentState | None = None
) -> list[Enrolment]:
    """Enrolments of a task by device id, a page of them or all."""
    if page is None and state is not None:
        return await fetch_all(tx, _ENROLLED, Enrolment, {"p_task": task_id, "p_state": state})
    query = _ENROLMENTS.where(t.enrolments.c.task_id == task_id).order_by(t.enrolments.c.device_id)
    if state:
        query = query.where(t.enrolments.c.state == state)
    if page:
        query = query.where(t.enrolments.c.device_id > page.cursor).limit(page.limit)
    return await fetch_all(tx, query, Enrolment)


async def list_newcomers(tx: Tx, task_id: str, number: int) -> list[Enrolment]:
    """Devices that enrolled since the round before this one opened and have no part in this one."""
    e, p, r = t.enrolments.c, t.participations.c, t.rounds.c
    last = sa.select(r.opened_at).where(r.task_id == task_id, r.number == number - 1).scalar_subquery()
    part = sa.exists().where(p.task_id == task_id, p.round == number, p.device_id == e.device_id)
    query = _ENROLMENTS.where(e.task_id == task_id, e.state == EnrolmentState.ACTIVE, ~part)
    return await fetch_all(tx, query.where(e.enrolled_at >= sa.func.coalesce(last, 0.0)), Enrolment)


async def count_enrolled(tx: Tx, task_ids: Sequence[str]) -> dict[str, int]:
    """Active enrolments of each task."""
    return dict((await tx.execute(_COUNT_ENROLLED, {"tasks": list(task_ids)})).all())


async def directions_said(tx: Tx, task_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Of each task, what active devices said of which way figures get better, with how many said the same."""
    e = t.enrolments.c
    query = (
        sa.select(e.task_id, e.better_json, sa.func.count())
        .where(e.task_id.in_(task_ids), e.state == EnrolmentState.ACTIVE, e.better_json != "")
        .group_by(e.task_id, e.better_json)
    )
    result: dict[str, dict[str, int]] = {}
    for task_id, text, devices in await tx.execute(query):
        result.setdefault(task_id, {})[text] = devices
    return result


async def is_enrolled_for_digest(tx: Tx, device_id: str, digest: str) -> bool:
    """Whether a device is enrolled in a task that has a model with this digest."""
    return (await tx.execute(_MAY_READ, {"p_digest": digest, "p_device": device_id})).first() is not None


async def add_events(tx: Tx, *events: Event) -> None:
    """Appends to the event log; once committed, a line of the service's own log says so, and it is counted."""
    rows = [{k: v for k, v in asdict(event).items() if k != "number"} for event in events]
    if rows:
        await tx.execute(_ADD_EVENTS, rows)
        tx.after_commit(lambda: _tell(events))


def _tell(events: Sequence[Event]) -> None:
    for event in events:
        EVENTS_TOTAL.labels(event.kind).inc()
        place = {"task": event.task_id, "round": event.round, "device": event.device_id}
        _log.info(event.kind, **{name: value for name, value in place.items() if value}, message=event.message)


async def list_events(tx: Tx, task_id: str, *, after: int, limit: int) -> list[Event]:
    """Events of a task after a number, in order."""
    query = _EVENTS.where(t.events.c.task_id == task_id, t.events.c.number > after)
    return await fetch_all(tx, query.order_by(t.events.c.number).limit(limit), Event)


async def last_events(tx: Tx, task_ids: Sequence[str]) -> dict[str, int]:
    """Number of each task's last event."""
    query = (
        sa.select(t.events.c.task_id, sa.func.max(t.events.c.number))
        .where(t.events.c.task_id.in_(task_ids))
        .group_by(t.events.c.task_id)
    )
    return dict((await tx.execute(query)).all())


def _task(*values: Any) -> Task:
    result = Task(*values)
    stored: Any = result.specification  # a document as yet
    return replace(result, specification=_specification(orjson.dumps(stored)))


@lru_cache(maxsize=1024)
def _specification(document: bytes) -> TaskSpecification:
    """A specification as it is stored; a task's is read many times a round."""
    stored = orjson.loads(document)
    lists = {name: tuple(stored.get(name, ())) for name in ("model_digests", "invited")}
    stop = Stop(**stored["stop"]) if stored.get("stop") else None
    read: dict[str, Any] = {"privacy_unit": PrivacyUnit(stored["privacy_unit"]), "stop": stop}
    read |= {
        "join_by": JoinBy(stored.get("join_by", JoinBy.OPEN)),
        "mode": RoundMode(stored.get("mode", RoundMode.SYNCHRONOUS)),
    }
    return TaskSpecification(**stored | lists | read)
