"""Stations at work and their questions in the database."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from services.kit.rows import Tx, columns, fetch_all, fetch_one, upsert
from services.topology.domain.records import AskedStation, StationLease
from services.topology.tables import station_questions, stations

_LEASES = sa.select(*columns(StationLease, stations))
_ASKED = sa.select(*columns(AskedStation, station_questions))


async def put_lease(tx: Tx, lease: StationLease) -> None:
    """A station takes a cell, or is heard of again."""
    await upsert(tx, stations, [asdict(lease)], ["cell_id"])


async def leases(tx: Tx) -> dict[str, StationLease]:
    """Stations that ever took a cell and did not leave it, by cell; some may be lost."""
    return {lease.cell_id: lease for lease in await fetch_all(tx, _LEASES, StationLease)}


async def lease_of(tx: Tx, cell_id: str) -> StationLease | None:
    """Who serves a cell."""
    return await fetch_one(tx, _LEASES.where(stations.c.cell_id == cell_id), StationLease)


async def forget(tx: Tx, cell_id: str) -> None:
    """The cell has no station any more, and nobody is waited for."""
    await tx.execute(stations.delete().where(stations.c.cell_id == cell_id))
    await tx.execute(station_questions.delete().where(station_questions.c.cell_id == cell_id))


async def ask(tx: Tx, asked: AskedStation) -> None:
    """Stores a question."""
    await tx.execute(station_questions.insert(), [asdict(asked)])


async def find(tx: Tx, question_id: str) -> AskedStation | None:
    """A question."""
    return await fetch_one(tx, _ASKED.where(station_questions.c.id == question_id), AskedStation)


async def next_open(tx: Tx, cell_id: str, now: float) -> AskedStation | None:
    """The first question to a cell's station that nobody took."""
    c = station_questions.c
    query = _ASKED.where(c.cell_id == cell_id, c.taken.is_(False), c.ends_at > now).order_by(c.asked_at, c.id).limit(1)
    return await fetch_one(tx, query, AskedStation)


async def take(tx: Tx, question_id: str) -> bool:
    """Marks a question as taken; whether it was not yet."""
    c = station_questions.c
    taken = station_questions.update().where(c.id == question_id, c.taken.is_(False)).values(taken=True)
    return bool((await tx.execute(taken)).rowcount)


async def answer(tx: Tx, question_id: str, answer_: bytes) -> bool:
    """Stores the first answer to a question; whether it is the first."""
    c = station_questions.c
    told = station_questions.update().where(c.id == question_id, c.answer == b"").values(answer=answer_)
    return bool((await tx.execute(told)).rowcount)


async def close(tx: Tx, question_id: str, before: float) -> None:
    """Forgets a question, and those that ended before a time: whoever asked them is gone."""
    c = station_questions.c
    await tx.execute(station_questions.delete().where((c.id == question_id) | (c.ends_at < before)))
