"""Worths of coalitions while a round is valued, and what each device contributed to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import RoundState
from services.aggregation import tables as t
from services.aggregation.domain.records import Contribution
from services.kit.database.rows import Tx, upsert
from services.kit.rpc.paging import Page


async def add_worths(tx: Tx, task_id: str, number: int, worths: Mapping[int, float]) -> None:
    """Remembers the worth of coalitions, by bit mask; what is known stays."""
    rows = [{"task_id": task_id, "round": number, "coalition": f"{m:x}", "worth": w} for m, w in worths.items()]
    if rows:
        await upsert(tx, t.worths, rows, ["task_id", "round", "coalition"], only=[])


async def list_worths(tx: Tx, task_id: str, number: int) -> dict[int, float]:
    """Worths known for a round, by bit mask."""
    w = t.worths.c
    rows = await tx.execute(sa.select(w.coalition, w.worth).where(w.task_id == task_id, w.round == number))
    return {int(row.coalition, 16): row.worth for row in rows}


async def value_round(tx: Tx, task_id: str, number: int, values: Mapping[str, tuple[float, float]]) -> None:
    """Stores (value, error) of every device of a round, for good, and forgets the worths they came from."""
    rows = [
        {"task_id": task_id, "round": number, "device_id": device, "value": value, "error": error}
        for device, (value, error) in values.items()
    ]
    if rows:
        await upsert(tx, t.contributions, rows, ["task_id", "round", "device_id"], only=[])
    await tx.execute(t.worths.delete().where(t.worths.c.task_id == task_id, t.worths.c.round == number))


async def values_of(tx: Tx, task_id: str, number: int) -> dict[str, float]:
    """What each device contributed to a round; empty when it was not valued."""
    c = t.contributions.c
    rows = await tx.execute(sa.select(c.device_id, c.value).where(c.task_id == task_id, c.round == number))
    return {row.device_id: row.value for row in rows}


async def next_round(tx: Tx, task_id: str, states: Sequence[RoundState]) -> int:
    """The first round in one of these states that is not valued and whose updates are stored; 0 = none."""
    r, p, c = t.rounds.c, t.participations.c, t.contributions.c
    valued = sa.exists().where(c.task_id == r.task_id, c.round == r.number)
    stored = sa.exists().where(p.task_id == r.task_id, p.round == r.number, p.is_stored)
    over = r.state.in_(states)
    query = sa.select(sa.func.min(r.number)).where(r.task_id == task_id, over, ~valued, stored)
    return (await tx.execute(query)).scalar() or 0


async def totals(tx: Tx, task_id: str, number: int, page: Page, only: str = "") -> list[Contribution]:
    """What each device contributed to a round, or with 0 to all of them, by device id."""
    c = t.contributions.c
    squares: sa.ColumnElement[Any] = sa.func.sum(c.error * c.error)
    query = sa.select(c.device_id, sa.func.count(), sa.func.sum(c.value), squares).where(
        c.task_id == task_id, c.device_id > page.cursor
    )
    query = query.where(c.round == number) if number else query
    query = query.where(c.device_id == only) if only else query
    rows: Sequence[Any] = (await tx.execute(query.group_by(c.device_id).order_by(c.device_id).limit(page.limit))).all()
    return [Contribution(device, count, value, math.sqrt(square)) for device, count, value, square in rows]
