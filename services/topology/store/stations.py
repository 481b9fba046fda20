"""Stations at work and their questions in the database."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_all, fetch_one, upsert
from services.topology.domain.records import AskedStation, StationLease
from services.topology.tables import station_questions, stations

_LEASES = sa.select(*columns(StationLease, stations))
_LEASE = _LEASES.where(stations.c.cell_id == sa.bindparam("cell"))
_Q = station_questions.c
_ASKED = sa.select(*columns(AskedStation, station_questions))
_THIS = _Q.id == sa.bindparam("p_question")
_FOUND = _ASKED.where(_THIS)
_NEXT = (
    _ASKED.where(_Q.cell_id == sa.bindparam("cell"), _Q.taken.is_(False), _Q.ends_at > sa.bindparam("now"))
    .order_by(_Q.asked_at, _Q.id)
    .limit(1)
)
_ASK = station_questions.insert()
_TAKE = station_questions.update().where(_THIS, _Q.taken.is_(False)).values(taken=True)
_ANSWER = station_questions.update().where(_THIS, _Q.answer == b"").values(answer=sa.bindparam("p_answer"))
_FORGET_OLD = station_questions.delete().where(_Q.ends_at < sa.bindparam("before"))


async def put_lease(tx: Tx, lease: StationLease) -> None:
    """Store or renew a station's lease of a cell."""
    await upsert(tx, stations, [asdict(lease)], ["cell_id"])


async def leases(tx: Tx) -> dict[str, StationLease]:
    """Leases by cell of stations that took a cell and did not leave it; some may be lost."""
    return {lease.cell_id: lease for lease in await fetch_all(tx, _LEASES, StationLease)}


async def lease_of(tx: Tx, cell_id: str) -> StationLease | None:
    """Return the lease of a cell."""
    return await fetch_one(tx, _LEASE, StationLease, {"cell": cell_id})


async def forget(tx: Tx, cell_id: str) -> None:
    """Delete a cell's station and its questions."""
    await tx.execute(stations.delete().where(stations.c.cell_id == cell_id))
    await tx.execute(station_questions.delete().where(station_questions.c.cell_id == cell_id))


async def ask(tx: Tx, asked: AskedStation) -> None:
    """Stores a question."""
    await tx.execute(_ASK, [asdict(asked)])


async def find(tx: Tx, question_id: str) -> AskedStation | None:
    """A question."""
    return await fetch_one(tx, _FOUND, AskedStation, {"p_question": question_id})


async def next_open(tx: Tx, cell_id: str, now: float) -> AskedStation | None:
    """Return the first question to a cell's station that is not taken."""
    return await fetch_one(tx, _NEXT, AskedStation, {"cell": cell_id, "now": now})


async def take(tx: Tx, question_id: str) -> bool:
    """Mark a question as taken; return whether it was open."""
    return bool((await tx.execute(_TAKE, {"p_question": question_id})).rowcount)


async def answer(tx: Tx, question_id: str, answer: bytes) -> bool:
    """Store the first answer to a question; return whether it is the first."""
    return bool((await tx.execute(_ANSWER, {"p_question": question_id, "p_answer": answer})).rowcount)


async def forget_old(tx: Tx, before: float) -> None:
    """Delete questions that ended before a time: their callers have the answer or stopped waiting."""
    await tx.execute(_FORGET_OLD, {"before": before})
