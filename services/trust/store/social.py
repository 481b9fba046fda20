"""Pairs and interactions in the database.

Whoever records takes `locked` first: one transaction at a time changes pairs, on either database, so that pair numbers
stay dense and sums are never lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from services.kit.paging import Page
from services.kit.rows import Row, Tx, columns, fetch_all, insert_rows, serialise, update_rows
from services.trust.domain.graph import Floats, Integers
from services.trust.domain.records import RecordedInteraction
from services.trust.tables import interactions, pairs, social_version

_SOCIAL_LOCK = 0x736F6369616C  # "social"
_INTERACTION = columns(RecordedInteraction, interactions, low=pairs.c.low, high=pairs.c.high)
_PAIR_COLUMNS = (
    pairs.c.number,
    pairs.c.low,
    pairs.c.high,
    pairs.c.count,
    pairs.c.positive_count,
    pairs.c.positive_sum,
    pairs.c.negative_sum,
    pairs.c.reference_at,
)
_WITH_PAIR: sa.Select[Any] = sa.select(*_INTERACTION).join(pairs, pairs.c.number == interactions.c.pair)


@dataclass(frozen=True, slots=True)
class History:
    """Interactions column by column: pair numbers, outcome, duration and time."""

    pairs: Integers
    positive: np.ndarray[Any, np.dtype[np.bool_]]
    durations_seconds: Floats
    at: Floats

    def __len__(self) -> int:
        return len(self.pairs)


async def locked(tx: Tx) -> None:
    """Waits until no other transaction is recording."""
    await serialise(tx, _SOCIAL_LOCK)


async def version(tx: Tx) -> int:
    """How many transactions have changed pairs."""
    return int((await tx.execute(sa.select(social_version.c.version))).scalar_one())


async def parameters(tx: Tx) -> tuple[float | None, float | None]:
    """Decay rate and full duration the sums of pairs were made with; None before the first start."""
    row = (await tx.execute(sa.select(social_version))).one()
    return row.decay_rate, row.full_duration_seconds


async def set_parameters(tx: Tx, decay_rate: float, full_duration_seconds: float) -> None:
    """Notes what the sums of pairs are made with."""
    values = {"decay_rate": decay_rate, "full_duration_seconds": full_duration_seconds}
    await tx.execute(sa.update(social_version).values(values))


async def pair_count(tx: Tx) -> int:
    """How many pairs there are, which is also the last one's number."""
    return int((await tx.execute(sa.select(sa.func.count()).select_from(pairs))).scalar_one())


async def save_sums(tx: Tx, rows: list[Row], at_version: int) -> None:
    """Replaces the sums of pairs; rows are positive sum, negative sum, reference time and the pair's number."""
    names = ("new_positive_sum", "new_negative_sum", "new_reference_at")
    values: dict[str, Any] = {name.removeprefix("new_"): sa.bindparam(name) for name in names}
    statement = sa.update(pairs).where(pairs.c.number == sa.bindparam("pair"))
    await update_rows(
        tx,
        statement.values(**values, version=sa.bindparam("new_version")),
        (*names, "pair", "new_version"),
        [(*row, at_version) for row in rows],
    )
    await tx.execute(sa.update(social_version).values(version=at_version))


async def pairs_since(tx: Tx, known: int) -> list[Row]:
    """Pairs changed after version `known`: number, low, high, count, positives, both sums, reference time."""
    query = sa.select(*_PAIR_COLUMNS).where(pairs.c.version > known)
    return [tuple(row) for row in await tx.execute(query)]


async def known_ids(tx: Tx, reporter: int, ids: Sequence[str]) -> set[str]:
    """Which of `ids` the reporter has used before: one statement, whatever their number."""
    query = sa.select(interactions.c.id).where(interactions.c.reporter == reporter)
    if tx.dialect.name == "sqlite":
        given = sa.func.json_each(json.dumps(list(ids))).table_valued("value")
        query = query.where(interactions.c.id.in_(sa.select(given.c.value)))
    else:
        query = query.where(interactions.c.id == sa.func.any(sa.cast(list(ids), postgresql.ARRAY(sa.Text))))
    return set((await tx.execute(query)).scalars())


PAIR = ("number", "low", "high", "count", "positive_count", "positive_sum", "negative_sum", "reference_at", "version")
CHANGE = ("new_count", "new_positive_count", "new_positive_sum", "new_negative_sum", "new_reference_at", "new_version")
REPORT = ("reporter", "id", "pair", "positive", "duration_seconds", "at", "kind", "note")
"""Columns of the rows that `save_pairs` and `add` take, in order."""


async def save_pairs(tx: Tx, added: list[Row], changed: list[Row], at_version: int) -> None:
    """Writes new pairs (rows of `PAIR`), changed ones (rows of `CHANGE`, then the number) and their version."""
    await insert_rows(tx, [pairs.c[name] for name in PAIR], added)
    values: dict[str, Any] = {name.removeprefix("new_"): sa.bindparam(name) for name in CHANGE}
    statement = sa.update(pairs).where(pairs.c.number == sa.bindparam("pair")).values(values)
    await update_rows(tx, statement, (*CHANGE, "pair"), changed)
    await tx.execute(sa.update(social_version).values(version=at_version))


async def add(tx: Tx, rows: list[Row]) -> None:
    """Appends interactions (rows of `REPORT`)."""
    await insert_rows(tx, [interactions.c[name] for name in REPORT], rows)


async def page(tx: Tx, wanted: Page, a: int, b: int | None) -> list[RecordedInteraction]:
    """Interactions of device `a`, or of `a` with `b`, latest recorded first."""
    query = _WITH_PAIR.order_by(interactions.c.number.desc()).limit(wanted.limit)
    if b is None:
        query = query.where((pairs.c.low == a) | (pairs.c.high == a))
    else:
        query = query.where(pairs.c.low == min(a, b), pairs.c.high == max(a, b))
    if wanted.cursor:
        query = query.where(interactions.c.number < int(wanted.cursor))
    return await fetch_all(tx, query, RecordedInteraction)


async def history_of(tx: Tx, pair: int, until: float) -> History:
    """A pair's interactions up to a time, in order of time."""
    query = _history().where(interactions.c.pair == pair, interactions.c.at <= until).order_by(interactions.c.at)
    return _columns((await tx.execute(query)).all())


async def history_between(tx: Tx, start: int, stop: int) -> History:
    """Every interaction of the pairs numbered from `start` to before `stop`."""
    query = _history().where(interactions.c.pair >= start, interactions.c.pair < stop)
    return _columns((await tx.execute(query)).all())


async def history_before(tx: Tx, at: float) -> History:
    """Interactions up to `at` of every pair that went on after it: what its sums held then."""
    query = (
        _history()
        .join(pairs, pairs.c.number == interactions.c.pair)
        .where(pairs.c.reference_at > at, interactions.c.at <= at)
    )
    return _columns((await tx.execute(query)).all())


async def pairs_with_failures(tx: Tx, since: float, device: int | None, most: int) -> list[int]:
    """Pairs with bad interactions after `since` (of one device, if given), those with most of them first."""
    query = sa.select(interactions.c.pair).where(interactions.c.at > since, sa.not_(interactions.c.positive))
    if device is not None:
        query = query.join(pairs, pairs.c.number == interactions.c.pair)
        query = query.where((pairs.c.low == device) | (pairs.c.high == device))
    query = query.group_by(interactions.c.pair).order_by(sa.func.count().desc(), interactions.c.pair).limit(most)
    return list((await tx.execute(query)).scalars())


async def failures(tx: Tx, pair: int, since: float, most: int) -> list[RecordedInteraction]:
    """A pair's bad interactions after `since`, newest first."""
    query = (
        _WITH_PAIR.where(interactions.c.pair == pair, interactions.c.at > since, sa.not_(interactions.c.positive))
        .order_by(interactions.c.at.desc())
        .limit(most)
    )
    return await fetch_all(tx, query, RecordedInteraction)


def _history() -> sa.Select[Any]:
    return sa.select(interactions.c.pair, interactions.c.positive, interactions.c.duration_seconds, interactions.c.at)


def _columns(rows: Sequence[Any]) -> History:
    if not rows:
        return History(np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0), np.zeros(0))
    numbers, positive, durations, times = zip(*rows, strict=True)
    return History(
        np.array(numbers, np.int64), np.array(positive, np.bool_), np.array(durations), np.array(times, np.float64)
    )
