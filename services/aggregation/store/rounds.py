"""Rounds and who takes part in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from coterie.records.words import ParticipationState, RoundState
from services.aggregation import tables as t
from services.aggregation.domain.records import (
    Delivery,
    Participation,
    Round,
)
from services.kit.paging import Page
from services.kit.rows import Tx, columns, fetch_all, fetch_one, plain, upsert

_ROUNDS: sa.Select[Any] = sa.select(*columns(Round, t.rounds))
_PARTICIPATIONS: sa.Select[Any] = sa.select(*columns(Participation, t.participations))
UNDER_WAY = (RoundState.OPEN, RoundState.CLOSING, RoundState.SETTLING)
"""States of rounds that are not over."""


async def add_round(tx: Tx, round_: Round, participations: Sequence[Participation]) -> None:
    """Stores a new round with its participants."""
    await tx.execute(t.rounds.insert(), [plain(asdict(round_))])
    await tx.execute(t.participations.insert(), [asdict(p) for p in participations])


async def add_participations(tx: Tx, participations: Sequence[Participation]) -> None:
    """Adds participants to a round, or gives participants new work; what they have delivered stays."""
    if participations:
        rows = [asdict(p) for p in participations]
        await upsert(
            tx,
            t.participations,
            rows,
            ["task_id", "round", "device_id"],
            only=["role", "state", "work", "note", "refused"],
        )


async def find_round(tx: Tx, task_id: str, number: int, *, lock: bool = False) -> Round | None:
    """One round, locked against other writers with `lock`."""
    query = _ROUNDS.where(t.rounds.c.task_id == task_id, t.rounds.c.number == number)
    return await fetch_one(tx, query.with_for_update() if lock else query, _round)


async def list_rounds(tx: Tx, task_id: str, page: Page) -> list[Round]:
    """Rounds of a task in order; the cursor is a round's number."""
    r = t.rounds.c
    query = _ROUNDS.where(r.task_id == task_id, r.number > int(page.cursor or 0))
    return await fetch_all(tx, query.order_by(r.number).limit(page.limit), _round)


async def change_round(tx: Tx, task_id: str, number: int, *, expected: RoundState, **values: Any) -> bool:
    """Changes columns of a round if it is in the expected state; whether it was."""
    result = await tx.execute(
        t.rounds.update()
        .where(t.rounds.c.task_id == task_id, t.rounds.c.number == number, t.rounds.c.state == expected)
        .values(**plain(values))
    )
    return bool(result.rowcount)


async def abandon_round(tx: Tx, task_id: str, number: int, now: float) -> None:
    """Fails a round that is not done."""
    r = t.rounds.c
    place = (r.task_id == task_id, r.number == number, r.state.in_(UNDER_WAY))
    await tx.execute(t.rounds.update().where(*place).values(state=RoundState.FAILED, done_at=now))


async def count_participations(tx: Tx, task_id: str, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
    """(participants, delivered) of each of these rounds."""
    p = t.participations.c
    delivered = sa.func.sum(sa.case((p.state == ParticipationState.DELIVERED, 1), else_=0))
    query = (
        sa.select(p.round, sa.func.count(), delivered)
        .where(p.task_id == task_id, p.round.in_(numbers))
        .group_by(p.round)
    )
    return {number: (count, done) for number, count, done in await tx.execute(query)}


async def list_participations(tx: Tx, task_id: str, number: int) -> list[Participation]:
    """Everybody in a round by device id."""
    p = t.participations.c
    query = _PARTICIPATIONS.where(p.task_id == task_id, p.round == number)
    return await fetch_all(tx, query.order_by(p.device_id), Participation)


async def last_participations(tx: Tx, task_id: str, before_round: int) -> list[Participation]:
    """Everybody in the round before this one."""
    return await list_participations(tx, task_id, before_round - 1) if before_round > 1 else []


async def last_lines(tx: Tx, task_id: str) -> dict[str, int]:
    """The model line each device delivered to last."""
    p = t.participations.c
    delivered = (p.task_id == task_id, p.state == ParticipationState.DELIVERED)
    newest = sa.select(p.device_id, sa.func.max(p.round).label("round")).where(*delivered).group_by(p.device_id)
    last = newest.subquery()
    query = sa.select(p.device_id, p.model_index).where(*delivered)
    found = query.join(last, (last.c.device_id == p.device_id) & (last.c.round == p.round))
    return {row.device_id: row.model_index for row in await tx.execute(found)}


async def list_device_participations(tx: Tx, task_id: str, device_id: str, page: Page) -> list[Participation]:
    """A device's part in the rounds of a task, in order; the cursor is a round's number."""
    p = t.participations.c
    query = _PARTICIPATIONS.where(p.task_id == task_id, p.device_id == device_id, p.round > int(page.cursor or 0))
    return await fetch_all(tx, query.order_by(p.round).limit(page.limit), Participation)


async def states_of(
    tx: Tx, task_id: str, number: int, devices: Sequence[str]
) -> dict[str, tuple[ParticipationState, str]]:
    """(state, digest) of these devices in a round, locked against other writers."""
    p = t.participations.c
    query = sa.select(p.device_id, p.state, p.digest).where(
        p.task_id == task_id, p.round == number, p.device_id.in_(devices)
    )
    return {row.device_id: (row.state, row.digest) for row in await tx.execute(query.with_for_update())}


async def deliver(tx: Tx, deliveries: Sequence[Delivery], *, replica: str, now: float) -> None:
    """Marks deliveries as made; the caller has locked their rows."""
    p = t.participations
    statement = p.update().where(
        p.c.task_id == sa.bindparam("p_task"),
        p.c.round == sa.bindparam("p_round"),
        p.c.device_id == sa.bindparam("p_device"),
    )
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
        }
        for d in deliveries
    ]
    names = [name for name in rows[0] if not name.startswith("p_")]
    await tx.execute(statement.values({name: sa.bindparam(name) for name in names}), rows)


async def mark(
    tx: Tx, task_id: str, number: int, devices: Sequence[str], *, state: ParticipationState, note: str
) -> None:
    """Sets state and note of participants who have not delivered."""
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
    told = standing.note if standing.refused else note
    await tx.execute(p.update().where(*place).values(state=state, note=told))
    return state


async def rule(tx: Tx, participations: Sequence[Participation]) -> None:
    """Sets what participants, delivered or not, end the round with to these."""
    p = t.participations
    names = ("state", "note", "aside", "metrics")
    statement = (
        p.update()
        .where(
            p.c.task_id == sa.bindparam("p_task"),
            p.c.round == sa.bindparam("p_round"),
            p.c.device_id == sa.bindparam("p_device"),
        )
        .values({name: sa.bindparam(name) for name in names})
    )
    rows = [
        {"p_task": each.task_id, "p_round": each.round, "p_device": each.device_id}
        | {name: getattr(each, name) for name in names}
        for each in participations
    ]
    if rows:
        await tx.execute(statement, rows)


async def refuse(tx: Tx, task_id: str, number: int, device_id: str, why: str) -> None:
    """Notes that an update of a participant was refused; it may send another."""
    p = t.participations
    place = (p.c.task_id == task_id, p.c.round == number, p.c.device_id == device_id)
    await tx.execute(p.update().where(*place).values(refused=True, note=f"rejected: {why}"))


def _round(*values: Any) -> Round:
    found = Round(*values)
    return replace(found, model_digests=tuple(found.model_digests))
