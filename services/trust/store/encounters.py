"""Tallies of meetings and common tasks in the database, and the reports they count."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from coterie.records.enums import RelationKind
from services.kit.database.rows import Tx, batches, upsert
from services.trust.domain.encounters import Standing, Tally
from services.trust.domain.records import Basis
from services.trust.tables import devices, encounters, interactions, owners, pairs, relations

MEETING = "meeting"
_BASES = (Basis.BOTH, Basis.ADMIN)


@dataclass(frozen=True, slots=True)
class Report:
    """A report that may relate two devices: a meeting, or work in the task that its id begins with."""

    pair: int
    low: int
    high: int
    at: float
    seconds: float
    task: str = ""
    """Empty for a meeting."""


_TALLIES = sa.select(encounters).where(encounters.c.pair.in_(sa.bindparam("pairs", expanding=True)))


async def tallies(tx: Tx, numbers: Sequence[int]) -> dict[tuple[int, str], Tally]:
    """Return the tallies of these pairs, by number and kind."""
    result: dict[tuple[int, str], Tally] = {}
    for part in batches(numbers):
        for row in await tx.execute(_TALLIES, {"pairs": list(part)}):
            result[row.pair, row.kind] = Tally(row.times, row.last_stop, tuple(json.loads(row.tasks)))
    return result


async def keep(tx: Tx, changed: Mapping[tuple[int, str], Tally]) -> None:
    """Store tallies."""
    rows = [
        {
            "pair": pair,
            "kind": kind,
            "times": tally.times,
            "last_stop": tally.last_stop if math.isfinite(tally.last_stop) else 0.0,
            "tasks": json.dumps(tally.tasks),
        }
        for (pair, kind), tally in changed.items()
    ]
    for part in batches(rows):
        await upsert(tx, encounters, list(part), ["pair", "kind"])


async def forget(tx: Tx, kinds: Sequence[str], device: int | None = None) -> dict[tuple[int, int, str], float]:
    """Delete tallies and derived relations of these kinds, of one device or of all; return since when each held."""
    counted = sa.delete(encounters).where(encounters.c.kind.in_(list(kinds)))
    derived = (relations.c.source == "derived") & relations.c.kind.in_(list(kinds))
    if device is not None:
        own = sa.select(pairs.c.number).where((pairs.c.low == device) | (pairs.c.high == device))
        counted = counted.where(encounters.c.pair.in_(own))
        derived &= (relations.c.low == device) | (relations.c.high == device)
    columns = (relations.c.low, relations.c.high, relations.c.kind, relations.c.since)
    since = {(low, high, kind): held for low, high, kind, held in await tx.execute(sa.select(*columns).where(derived))}
    await tx.execute(counted)
    await tx.execute(sa.delete(relations).where(derived))
    return since


async def relate(tx: Tx, rows: Sequence[dict[str, Any]]) -> None:
    """Store derived relations, a stronger one instead of the same; imported ones stay.

    A changed row gets a new number, by which caches notice the change; its `since` stays.
    """
    key = sa.tuple_(relations.c.low, relations.c.high, relations.c.kind)
    for part in batches(rows, 300):
        wanted = [(row["low"], row["high"], row["kind"]) for row in part]
        known = {
            (row.low, row.high, row.kind): row for row in await tx.execute(sa.select(relations).where(key.in_(wanted)))
        }
        stale = [row.number for row in known.values() if row.source == "derived"]
        fresh = [
            row | {"since": known[place].since} if place in known else row
            for row, place in zip(part, wanted, strict=True)
            if place not in known or known[place].source == "derived"
        ]
        if stale:
            await tx.execute(sa.delete(relations).where(relations.c.number.in_(stale)))
        if fresh:
            await tx.execute(sa.insert(relations), fresh)


async def standings(tx: Tx, numbers: Sequence[int]) -> dict[int, Standing]:
    """Return the properties of devices that the rules use, by number."""
    result: dict[int, Standing] = {}
    query = sa.select(devices.c.number, devices.c.x_metres, owners.c.public).join(
        owners, owners.c.number == devices.c.owner_number
    )
    for part in batches(numbers):
        for row in await tx.execute(query.where(devices.c.number.in_(part))):
            result[row.number] = Standing(row.x_metres is not None, bool(row.public))
    return result


async def history(tx: Tx, kinds: Sequence[RelationKind], device: int | None = None) -> list[Report]:
    """Return every report that counts for these kinds, of one device or of all, in order of time."""
    chosen: list[sa.ColumnElement[bool]] = []
    if set(kinds) - {RelationKind.CO_WORK}:
        chosen.append(sa.and_(interactions.c.kind == MEETING, interactions.c.basis.in_(_BASES)))
    if RelationKind.CO_WORK in kinds:
        chosen.append(sa.and_(interactions.c.basis == Basis.PLATFORM, interactions.c.positive))
    if not chosen:
        return []
    counted = interactions.c.counted_seconds  # the shorter of both ends' durations
    seconds = sa.case((counted > 0, counted), else_=interactions.c.duration_seconds)
    query = (
        sa.select(
            interactions.c.pair, pairs.c.low, pairs.c.high, interactions.c.at, seconds,
            interactions.c.basis, interactions.c.id,
        )
        .join(pairs, pairs.c.number == interactions.c.pair)
        .where(sa.or_(*chosen))
        .order_by(interactions.c.at, interactions.c.number)
    )  # fmt: skip
    if device is not None:
        query = query.where((pairs.c.low == device) | (pairs.c.high == device))
    return [
        Report(pair, low, high, at, lasted, task=id_.partition(".")[0] if basis == Basis.PLATFORM else "")
        for pair, low, high, at, lasted, basis, id_ in await tx.execute(query)
    ]


async def is_empty(tx: Tx) -> bool:
    """Whether nothing was ever counted although reports exist: an earlier version wrote the tables."""
    counted = sa.select(encounters.c.pair).limit(1)
    reported = sa.select(interactions.c.number).where(
        (interactions.c.kind == MEETING) | ((interactions.c.basis == Basis.PLATFORM) & interactions.c.positive)
    )
    if (await tx.execute(counted)).first() is not None:
        return False
    return (await tx.execute(reported.limit(1))).first() is not None
