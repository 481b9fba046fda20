"""Rounds and who takes part in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import Form, ParticipationState, RoundState, TaskState
from services.aggregation import tables as t
from services.aggregation.domain.records import (
    Delivery,
    Participation,
    Round,
)
from services.kit.database.rows import Tx, batches, columns, fetch_all, fetch_one, plain, upsert
from services.kit.rpc.paging import Page

_ROUNDS: sa.Select[Any] = sa.select(*columns(Round, t.rounds))
_PARTICIPATIONS: sa.Select[Any] = sa.select(*columns(Participation, t.participations))
_COLUMNS = tuple(field.name for field in fields(Participation))
# Precompiled: building a hot statement costs more than running it.
_ROUND = _ROUNDS.where(t.rounds.c.task_id == sa.bindparam("p_task"), t.rounds.c.number == sa.bindparam("p_round"))
_ADD_ROUND, _ADD_PARTICIPATIONS = t.rounds.insert(), t.participations.insert()
_ROUND_LOCKED = _ROUND.with_for_update()
_IN_ROUND = (t.participations.c.task_id == sa.bindparam("p_task"), t.participations.c.round == sa.bindparam("p_round"))
_ALL_IN_ROUND = _PARTICIPATIONS.where(*_IN_ROUND).order_by(t.participations.c.device_id)
_STANDING = (
    sa.select(t.participations.c.device_id, t.participations.c.state, t.participations.c.digest)
    .where(*_IN_ROUND, t.participations.c.device_id.in_(sa.bindparam("devices", expanding=True)))
    .with_for_update()
)
_DIGESTS = sa.select(t.participations.c.digest).where(*_IN_ROUND, t.participations.c.digest != "")
_GIVE_UP = t.participations.update().where(*_IN_ROUND, t.participations.c.digest != "").values(is_stored=False)
_FORGET_WORK = t.participations.update().where(*_IN_ROUND, t.participations.c.work != b"").values(work=b"")
_LEND = (
    t.rounds.update()
    .where(
        t.rounds.c.task_id == sa.bindparam("p_task"),
        t.rounds.c.number == sa.bindparam("p_round"),
        t.rounds.c.state == sa.bindparam("p_state"),
        t.rounds.c.fence == sa.bindparam("p_fence"),
    )
    .values({name: sa.bindparam(name) for name in ("state", "closer", "fence")})
)
UNDER_WAY = (RoundState.OPEN, RoundState.CLOSING, RoundState.SETTLING)
"""States of rounds that are not over."""


async def add_round(tx: Tx, round_: Round, participations: Sequence[Participation]) -> None:
    """Stores a new round with its participants."""
    await tx.execute(_ADD_ROUND, [plain(asdict(round_))])
    await tx.execute(_ADD_PARTICIPATIONS, [_row(p) for p in participations])


async def add_participations(tx: Tx, participations: Sequence[Participation]) -> None:
    """Adds participants to a round, or gives participants new work; what they have delivered stays."""
    if participations:
        rows = [_row(p) for p in participations]
        await upsert(
            tx,
            t.participations,
            rows,
            ["task_id", "round", "device_id"],
            only=["role", "state", "work", "note", "refused"],
        )


async def find_round(tx: Tx, task_id: str, number: int, *, lock: bool = False) -> Round | None:
    """One round, locked against other writers with `lock`."""
    return await fetch_one(tx, _ROUND_LOCKED if lock else _ROUND, _round, {"p_task": task_id, "p_round": number})


async def count_present(tx: Tx) -> dict[RoundState | None, int]:
    """How many running tasks have their present round in which state; None for those without a round."""
    present = sa.and_(t.rounds.c.task_id == t.tasks.c.id, t.rounds.c.number == t.tasks.c.round)
    query = (
        sa.select(t.rounds.c.state, sa.func.count())
        .select_from(t.tasks.outerjoin(t.rounds, present))
        .where(t.tasks.c.state == TaskState.RUNNING)
        .group_by(t.rounds.c.state)
    )
    return {row[0]: int(row[1]) for row in await tx.execute(query)}


async def list_rounds(tx: Tx, task_id: str, page: Page) -> list[Round]:
    """Rounds of a task in order; the cursor is a round's number."""
    r = t.rounds.c
    query = _ROUNDS.where(r.task_id == task_id, r.number > int(page.cursor or 0))
    return await fetch_all(tx, query.order_by(r.number).limit(page.limit), _round)


async def change_round(tx: Tx, task_id: str, number: int, *, expected: RoundState, **values: Any) -> bool:
    """Changes columns of a round if it is in the expected state; whether it was."""
    place = {"p_task": task_id, "p_round": number, "p_state": expected}
    return bool((await tx.execute(_round_changing(*values), place | plain(values))).rowcount)


@cache
def _round_changing(*names: str) -> sa.Update:
    r = t.rounds
    place = (
        r.c.task_id == sa.bindparam("p_task"),
        r.c.number == sa.bindparam("p_round"),
        r.c.state == sa.bindparam("p_state"),
    )
    return r.update().where(*place).values({name: sa.bindparam(name) for name in names})


async def lend(tx: Tx, held: Round, fresh: Round) -> bool:
    """Gives a round to who closes it, if it is in the state and under the lease it was read with; whether it was."""
    place = {"p_task": held.task_id, "p_round": held.number, "p_state": held.state, "p_fence": held.fence}
    values = {"state": fresh.state, "closer": fresh.closer, "fence": fresh.fence}
    return bool((await tx.execute(_LEND, place | values)).rowcount)


async def abandon_round(tx: Tx, task_id: str, number: int, now: float) -> None:
    """Fails a round that is not done; its updates may be deleted."""
    r, p = t.rounds.c, t.participations
    place = (r.task_id == task_id, r.number == number, r.state.in_(UNDER_WAY))
    failed = await tx.execute(t.rounds.update().where(*place).values(state=RoundState.FAILED, done_at=now))
    if failed.rowcount:
        await tx.execute(p.update().where(p.c.task_id == task_id, p.c.round == number).values(is_stored=False))


async def count_participations(tx: Tx, task_id: str, numbers: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """(participants, delivered, disputed) of each of these rounds."""
    p = t.participations.c
    delivered = sa.func.sum(sa.case((p.state == ParticipationState.DELIVERED, 1), else_=0))
    disputed = sa.func.sum(sa.case((p.objection != "", 1), else_=0))
    query = (
        sa.select(p.round, sa.func.count(), delivered, disputed)
        .where(p.task_id == task_id, p.round.in_(numbers))
        .group_by(p.round)
    )
    return {number: (count, done, objected) for number, count, done, objected in await tx.execute(query)}


async def delivered_by_owner(tx: Tx, task_id: str, number: int) -> Counter[str]:
    """How many updates of each owner's devices are in a round."""
    p = t.participations.c
    where = (p.task_id == task_id, p.round == number, p.state == ParticipationState.DELIVERED)
    query = sa.select(p.owner_id, sa.func.count()).where(*where).group_by(p.owner_id)
    return Counter({row[0]: row[1] for row in await tx.execute(query)})


async def list_participations(tx: Tx, task_id: str, number: int) -> list[Participation]:
    """Return the participations of a round by device id."""
    return await fetch_all(tx, _ALL_IN_ROUND, Participation, {"p_task": task_id, "p_round": number})


async def standings(tx: Tx, task_id: str, number: int) -> dict[str, ParticipationState]:
    """Return the state of every device in a round."""
    p = t.participations.c
    query = sa.select(p.device_id, p.state).where(p.task_id == task_id, p.round == number)
    return dict((await tx.execute(query)).all())


async def members_heard(tx: Tx, task_id: str, number: int) -> dict[str, list[dict[str, object]]]:
    """What those who handed in sums of others said of them."""
    p = t.participations.c
    query = sa.select(p.device_id, p.members).where(p.task_id == task_id, p.round == number, p.form == Form.SUM)
    return dict((await tx.execute(query)).all())


async def last_participations(tx: Tx, task_id: str, before_round: int) -> list[Participation]:
    """Return the participations of the round before this one."""
    return await list_participations(tx, task_id, before_round - 1) if before_round > 1 else []


async def last_lines(tx: Tx, task_id: str) -> dict[str, int]:
    """The model line each device delivered to last."""
    p = t.participations.c
    delivered = (p.task_id == task_id, p.state == ParticipationState.DELIVERED)
    newest = sa.select(p.device_id, sa.func.max(p.round).label("round")).where(*delivered).group_by(p.device_id)
    last = newest.subquery()
    query = sa.select(p.device_id, p.model_index).where(*delivered)
    result = query.join(last, (last.c.device_id == p.device_id) & (last.c.round == p.round))
    return {row.device_id: row.model_index for row in await tx.execute(result)}


async def list_device_participations(tx: Tx, task_id: str, device_id: str, page: Page) -> list[Participation]:
    """A device's part in the rounds of a task, in order; the cursor is a round's number."""
    p = t.participations.c
    query = _PARTICIPATIONS.where(p.task_id == task_id, p.device_id == device_id, p.round > int(page.cursor or 0))
    return await fetch_all(tx, query.order_by(p.round).limit(page.limit), Participation)


async def states_of(
    tx: Tx, task_id: str, number: int, devices: Sequence[str]
) -> dict[str, tuple[ParticipationState, str]]:
    """(state, digest) of these devices in a round, locked against other writers."""
    result = await tx.execute(_STANDING, {"p_task": task_id, "p_round": number, "devices": list(devices)})
    return {row.device_id: (row.state, row.digest) for row in result}


async def deliver(tx: Tx, deliveries: Sequence[Delivery], *, replica: str, now: float) -> None:
    """Marks deliveries as made; the caller has locked their rows."""
    rows = [
        {
            "p_task": d.task_id,
            "p_round": d.round,
            "p_device": d.device_id,
            "state": ParticipationState.DELIVERED,
            "note": "",
            "refused": False,
            "digest": d.digest,
            "form": d.form,
            "weight": d.weight,
            "payload_bytes": d.size_bytes,
            "delivered_at": now,
            "metrics": d.metrics,
            "model_index": d.model_index,
            "budget": d.budget,
            "privacy": list(d.privacy),
            "members": list(d.members),
            "replica": replica,
            "base": d.base or d.round,
            "is_stored": True,
            "norm": d.norm,
        }
        for d in deliveries
    ]
    await _change_each(tx, rows)


async def carry(tx: Tx, deliveries: Sequence[Delivery]) -> None:
    """Notes with the work that stale deliveries were made for where they count; the caller has locked the rows."""
    rows = [
        {
            "p_task": d.task_id,
            "p_round": d.base,
            "p_device": d.device_id,
            "digest": d.digest,
            "note": f"counted in round {d.round}",
        }
        for d in deliveries
        if d.staleness
    ]
    if rows:
        await _change_each(tx, rows)


async def _change_each(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Changes participations, one for each row; its place is under "p_task", "p_round" and "p_device"."""
    await tx.execute(_changing(*(name for name in rows[0] if not name.startswith("p_"))), rows)


@cache
def _changing(*names: str) -> sa.Update:
    p = t.participations
    place = (
        p.c.task_id == sa.bindparam("p_task"),
        p.c.round == sa.bindparam("p_round"),
        p.c.device_id == sa.bindparam("p_device"),
    )
    return p.update().where(*place).values({name: sa.bindparam(name) for name in names})


async def release(tx: Tx, task_id: str, number: int) -> set[str]:
    """Gives up the updates of a round; their digests."""
    place = {"p_task": task_id, "p_round": number}
    digests = set((await tx.execute(_DIGESTS, place)).scalars())
    if digests:
        await tx.execute(_GIVE_UP, place)
    return digests


async def given_up(tx: Tx, task_id: str, number: int) -> set[str]:
    """Digests of a round's updates that are no longer stored."""
    p = t.participations.c
    where = (p.task_id == task_id, p.round == number, p.digest != "", sa.not_(p.is_stored))
    return set((await tx.execute(sa.select(p.digest).where(*where))).scalars())


async def forget_work(tx: Tx, task_id: str, number: int) -> None:
    """Delete the work items of a round that no call needs any more."""
    await tx.execute(_FORGET_WORK, {"p_task": task_id, "p_round": number})


async def mark(
    tx: Tx, task_id: str, number: int, devices: Sequence[str], *, state: ParticipationState, note: str
) -> None:
    """Sets state and note of participants who have not delivered."""
    if not devices:
        return
    p = t.participations
    await tx.execute(
        p.update()
        .where(
            p.c.task_id == task_id,
            p.c.round == number,
            p.c.device_id.in_(devices),
            p.c.state != ParticipationState.DELIVERED,
        )
        .values(state=state, note=note)
    )


async def decline(tx: Tx, task_id: str, number: int, device_id: str, note: str) -> ParticipationState:
    """Marks a participant who will not deliver: declined, or rejected when its update was refused before."""
    p = t.participations
    place = (p.c.task_id == task_id, p.c.round == number, p.c.device_id == device_id)
    standing = (await tx.execute(sa.select(p.c.state, p.c.note, p.c.refused).where(*place).with_for_update())).one()
    present: ParticipationState = standing.state
    if present is not ParticipationState.ASSIGNED:
        return present
    state = ParticipationState.REJECTED if standing.refused else ParticipationState.DECLINED
    reason = standing.note if standing.refused else note
    await tx.execute(p.update().where(*place).values(state=state, note=reason))
    return state


async def rule(tx: Tx, participations: Sequence[Participation]) -> None:
    """Sets what participants, delivered or not, end the round with to these."""
    names = ("state", "note", "excluded_because", "metrics", "judged_by", "weight")
    rows = [
        {"p_task": participation.task_id, "p_round": participation.round, "p_device": participation.device_id}
        | {name: getattr(participation, name) for name in names}
        for participation in participations
    ]
    if rows:
        await _change_each(tx, rows)


async def extend_deadline(tx: Tx, task_id: str, number: int, deadline_at: float) -> None:
    """Lets a round go on until then at least."""
    r = t.rounds.c
    where = (r.task_id == task_id, r.number == number, r.deadline_at < deadline_at)
    await tx.execute(t.rounds.update().where(*where).values(deadline_at=deadline_at))


async def assign_again(tx: Tx, task_id: str, number: int, devices: Sequence[str]) -> None:
    """Gives participants their work again, whatever they did with it, but for those that were rejected."""
    p = t.participations.c
    for some in batches(devices):
        where = (p.task_id == task_id, p.round == number, p.device_id.in_(some), p.state != ParticipationState.REJECTED)
        values = {"state": ParticipationState.ASSIGNED, "note": "", "refused": False}
        await tx.execute(t.participations.update().where(*where).values(**values))


async def find_participation(tx: Tx, task_id: str, number: int, device_id: str) -> Participation | None:
    """One device's part in a round, locked against other writers."""
    p = t.participations.c
    query = _PARTICIPATIONS.where(p.task_id == task_id, p.round == number, p.device_id == device_id)
    return await fetch_one(tx, query.with_for_update(), Participation)


async def object_to(tx: Tx, task_id: str, number: int, device_id: str, why: str) -> None:
    """Notes what a member says to its head's verdict."""
    p = t.participations
    place = (p.c.task_id == task_id, p.c.round == number, p.c.device_id == device_id)
    await tx.execute(p.update().where(*place).values(objection=why))


async def disputes(tx: Tx, task_id: str) -> dict[str, set[str]]:
    """Owners whose devices objected to each head's verdicts in any round of a task."""
    p = t.participations.c
    query = sa.select(p.judged_by, p.owner_id).where(p.task_id == task_id, p.objection != "")
    result: dict[str, set[str]] = {}
    for row in await tx.execute(query):
        result.setdefault(row.judged_by, set()).add(row.owner_id)
    return result


async def refuse(tx: Tx, task_id: str, number: int, device_id: str, why: str) -> None:
    """Notes that an update of a participant was refused; it may send another."""
    p = t.participations
    place = (p.c.task_id == task_id, p.c.round == number, p.c.device_id == device_id)
    await tx.execute(p.update().where(*place).values(refused=True, note=f"rejected: {why}"))


def _row(participation: Participation) -> dict[str, Any]:
    """A participation's columns; `asdict` would copy each value as deep as it goes."""
    return {name: getattr(participation, name) for name in _COLUMNS}


def _round(*values: Any) -> Round:
    result = Round(*values)
    return replace(result, model_digests=tuple(result.model_digests))
