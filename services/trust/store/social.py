"""Pairs and interactions in the database.

Recorders call `locked` first: one transaction at a time changes pairs, on either database, so that pair numbers have no
gaps and no update of a sum is lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from services.kit.database.rows import Row, Tx, advisory_lock, columns, fetch_all, insert_rows, update_rows
from services.kit.rpc.paging import Page
from services.trust.domain.evidence import Pieces
from services.trust.domain.pairs import EVIDENCE
from services.trust.domain.parameters import DAY_SECONDS
from services.trust.domain.records import Basis, RecordedInteraction
from services.trust.tables import interactions, pairs, social_version

_SOCIAL_LOCK = "trust social"
_INTERACTION = columns(RecordedInteraction, interactions, low=pairs.c.low, high=pairs.c.high)
_PAIR_COLUMNS = (
    pairs.c.number,
    pairs.c.low,
    pairs.c.high,
    *(pairs.c[name] for name in EVIDENCE),
)
_WITH_PAIR: sa.Select[Any] = sa.select(*_INTERACTION).join(pairs, pairs.c.number == interactions.c.pair)


async def locked(tx: Tx) -> None:
    """Wait until no other transaction is recording."""
    await advisory_lock(tx, _SOCIAL_LOCK)


_VERSION = sa.select(social_version.c.version)


async def version(tx: Tx) -> int:
    """Return the number of transactions that have changed pairs."""
    return int((await tx.execute(_VERSION)).scalar_one())


async def parameters(tx: Tx) -> tuple[float | None, float | None]:
    """Return decay rate and full duration of the stored sums; None before the first start."""
    row = (await tx.execute(sa.select(social_version))).one()
    return row.decay_rate, row.full_duration_seconds


async def set_parameters(tx: Tx, decay_rate: float, full_duration_seconds: float) -> None:
    """Store the parameters of the sums."""
    values = {"decay_rate": decay_rate, "full_duration_seconds": full_duration_seconds}
    await tx.execute(sa.update(social_version).values(values))


async def pair_count(tx: Tx) -> int:
    """Return the number of pairs, which is also the last one's number."""
    return int((await tx.execute(sa.select(sa.func.count()).select_from(pairs))).scalar_one())


_CHANGED: sa.Select[Any] = sa.select(*_PAIR_COLUMNS).where(pairs.c.version > sa.bindparam("known"))


async def pairs_since(tx: Tx, known: int) -> list[Row]:
    """Return pairs changed after version `known`: number, low, high, then `EVIDENCE`."""
    return [tuple(row) for row in await tx.execute(_CHANGED, {"known": known})]


async def known_ids(tx: Tx, reporter: int, ids: Sequence[str]) -> set[str]:
    """Return the ids of `ids` that the reporter has used before, with one statement."""
    result = await tx.execute(_known(tx.dialect.name), {"p_reporter": reporter, "wanted": wanted(tx, list(ids))})
    return set(result.scalars())


@cache
def _known(dialect: str) -> sa.Select[Any]:
    query = sa.select(interactions.c.id).where(interactions.c.reporter == sa.bindparam("p_reporter"))
    return query.where(among(dialect, interactions.c.id, sa.Text()))


def among(dialect: str, column: sa.Column[Any], kind: sa.types.TypeEngine[Any]) -> sa.ColumnElement[bool]:
    """Whether a column's value is in the list parameter "wanted": one parameter for any number of values.

    Statements with it are compiled once per database.
    """
    if dialect == "sqlite":
        given = sa.func.json_each(sa.bindparam("wanted", type_=sa.Text())).table_valued("value")
        return column.in_(sa.select(given.c.value))
    many = postgresql.ARRAY(kind)
    return column == sa.func.any(sa.cast(sa.bindparam("wanted", type_=many), many))


def wanted(tx: Tx, values: list[Any]) -> Any:
    """Return the values of `among`'s parameter in the database's form."""
    return json.dumps(values) if tx.dialect.name == "sqlite" else values


PAIR = ("number", "low", "high", *EVIDENCE, "version")
CHANGE = (*(f"new_{name}" for name in EVIDENCE), "new_version")
REPORT = (
    *("reporter", "id", "pair", "positive", "duration_seconds", "at", "kind", "note", "basis", "share"),
    "counted_seconds",
)
"""Columns of the rows that `save_pairs` and `add` take, in order."""
_COUNTING = ("new_basis", "new_share", "new_counted_seconds")


def _renewed(names: Sequence[str]) -> dict[str, Any]:
    return {name.removeprefix("new_"): sa.bindparam(name) for name in names}


# Compiled once: every report runs these statements.
_CHANGE_PAIR = sa.update(pairs).where(pairs.c.number == sa.bindparam("pair")).values(_renewed(CHANGE))
_CHANGE_INTERACTION = (
    sa.update(interactions).where(interactions.c.number == sa.bindparam("interaction")).values(_renewed(_COUNTING))
)
_SET_VERSION = sa.update(social_version).values(version=sa.bindparam("version"))


async def save_pairs(tx: Tx, added: list[Row], changed: list[Row], at_version: int) -> None:
    """Store new pairs (rows of `PAIR`), changed ones (rows of `CHANGE`, then the number) and their version."""
    await insert_rows(tx, [pairs.c[name] for name in PAIR], added)
    await update_rows(tx, _CHANGE_PAIR, (*CHANGE, "pair"), changed)
    await tx.execute(_SET_VERSION, {"version": at_version})


async def add(tx: Tx, rows: list[Row]) -> None:
    """Append interactions (rows of `REPORT`)."""
    await insert_rows(tx, [interactions.c[name] for name in REPORT], rows)


async def change(tx: Tx, rows: list[Row]) -> None:
    """Change how interactions count: rows of basis, share, counted seconds, and the interaction's number."""
    await update_rows(tx, _CHANGE_INTERACTION, (*_COUNTING, "interaction"), rows)


async def waiting(tx: Tx, of_pairs: list[int], since: float, until: float) -> list[Row]:
    """Return waiting reports of these pairs: number, reporter, pair, time and duration."""
    given = {"since": since, "until": until, "wanted": wanted(tx, of_pairs)}
    return [tuple(row) for row in await tx.execute(_waiting(tx.dialect.name), given)]


@cache
def _waiting(dialect: str) -> sa.Select[Any]:
    i = interactions.c
    query = sa.select(i.number, i.reporter, i.pair, i.at, i.duration_seconds).where(
        i.basis == sa.literal_column("'waiting'"), i.at >= sa.bindparam("since"), i.at <= sa.bindparam("until")
    )
    return query.where(among(dialect, interactions.c.pair, sa.BigInteger()))


async def waiting_count(tx: Tx, pair: int, since: float, until: float, most: int) -> int:
    """Return the number of a pair's waiting reports in a span of time, at most `most`."""
    i = interactions.c
    query = sa.select(i.number).where(i.pair == pair, i.basis == sa.literal_column("'waiting'"))
    few = query.where(i.at >= since, i.at <= until).limit(most).subquery()
    return int((await tx.execute(sa.select(sa.func.count()).select_from(few))).scalar_one())


_USED = """
    SELECT d.place, CASE WHEN NOT i.positive THEN 2 WHEN i.basis = 'platform' THEN 1 ELSE 0 END AS sort,
        SUM(i.share * CASE WHEN i.counted_seconds < :full THEN i.counted_seconds / :full ELSE 1.0 END) AS units,
        SUM(CASE WHEN i.reporter = :reporter THEN 1 ELSE 0 END) AS reports
    FROM {days} JOIN interactions i ON i.pair = d.pair AND i.at >= d.start AND i.at < d.start + :length
    WHERE i.share > 0 GROUP BY d.place, sort
"""
_DAYS = {
    "sqlite": "(SELECT key AS place, value ->> 0 AS pair, value ->> 1 AS start FROM json_each(:days)) d",
    "postgresql": "(SELECT place - 1 AS place, pair, start FROM "
    "unnest(CAST(:pairs AS bigint[]), CAST(:starts AS double precision[])) WITH ORDINALITY AS u(pair, start, place)) d",
}


_USED_ON = {dialect: sa.text(_USED.format(days=days)) for dialect, days in _DAYS.items()}


async def used(tx: Tx, days: list[tuple[int, float]], reporter: int, full_seconds: float) -> list[Row]:
    """Return what counts already on these days of pairs, each given by pair and start: place of the day in the list,
    kind of evidence (`daily_caps`), units, and the number of the reporter's reports."""
    given = {**_given(tx, days), "full": full_seconds, "reporter": reporter, "length": DAY_SECONDS}
    return [tuple(row) for row in await tx.execute(_USED_ON[tx.dialect.name], given)]


_SURPLUS = """
    SELECT number, pair, at, counted_seconds, share, basis FROM (
        SELECT i.number, i.pair, i.at, i.counted_seconds, i.share, i.basis,
            ROW_NUMBER() OVER (PARTITION BY d.place ORDER BY i.counted_seconds DESC, i.number) AS rank
        FROM {days} JOIN interactions i ON i.pair = d.pair AND i.at >= d.start AND i.at < d.start + :length
        WHERE NOT i.positive AND i.share < 1 AND i.counted_seconds > 0 AND i.reporter <> :reporter
    ) ranked WHERE rank <= :most ORDER BY rank, number
"""


async def surplus(tx: Tx, days: list[tuple[int, float]], reporter: int, most: int) -> list[Row]:
    """Return others' bad reports that full days of pairs left out, the longest `most` of each day: number, pair,
    time, seconds, share and basis."""
    given = {**_given(tx, days), "reporter": reporter, "length": DAY_SECONDS, "most": most}
    statement = sa.text(_SURPLUS.format(days=_DAYS[tx.dialect.name]))
    return [tuple(row) for row in await tx.execute(statement, given)]


def _given(tx: Tx, days: list[tuple[int, float]]) -> dict[str, Any]:
    """Return the parameters of `_DAYS` in the database's form."""
    if tx.dialect.name == "sqlite":
        return {"days": json.dumps(days)}
    return {"pairs": [pair for pair, _ in days], "starts": [start for _, start in days]}


async def against(tx: Tx, reporter: int, since: float, until: float) -> list[Row]:
    """Return one reporter's counted bad reports in [since, until): number, pair, time, seconds and share."""
    i = interactions.c
    counted = sa.text("share > 0 AND basis = 'one'")
    query = sa.select(i.number, i.pair, i.at, i.counted_seconds, i.share)
    query = query.where(i.reporter == reporter, i.at >= since, i.at < until, counted)
    return [tuple(row) for row in await tx.execute(query)]


async def page(tx: Tx, wanted: Page, a: int, b: int | None) -> list[RecordedInteraction]:
    """List interactions of device `a`, or of `a` with `b`, latest recorded first."""
    query = _WITH_PAIR.order_by(interactions.c.number.desc()).limit(wanted.limit)
    if b is None:
        query = query.where((pairs.c.low == a) | (pairs.c.high == a))
    else:
        query = query.where(pairs.c.low == min(a, b), pairs.c.high == max(a, b))
    if wanted.cursor:
        query = query.where(interactions.c.number < int(wanted.cursor))
    return await fetch_all(tx, query, RecordedInteraction)


async def history_of(tx: Tx, pair: int, until: float) -> Pieces:
    """Return a pair's evidence up to a time, in order of time."""
    query = _history().where(interactions.c.pair == pair, interactions.c.at <= until).order_by(interactions.c.at)
    return _pieces((await tx.execute(query)).all())


async def history_between(tx: Tx, start: int, stop: int) -> Pieces:
    """Return all evidence of the pairs from `start` to before `stop`."""
    query = _history().where(interactions.c.pair >= start, interactions.c.pair < stop)
    return _pieces((await tx.execute(query)).all())


async def history_before(tx: Tx, at: float) -> Pieces:
    """Return evidence up to `at` of every pair with later evidence, to recompute its sums."""
    query = (
        _history()
        .join(pairs, pairs.c.number == interactions.c.pair)
        .where(pairs.c.reference_at > at, interactions.c.at <= at)
    )
    return _pieces((await tx.execute(query)).all())


async def pairs_with_failures(tx: Tx, since: float, device: int | None, most: int) -> list[int]:
    """Return pairs with bad interactions after `since` (of one device, if given), most of them first."""
    query = sa.select(interactions.c.pair).where(interactions.c.at > since, sa.not_(interactions.c.positive))
    if device is not None:
        query = query.join(pairs, pairs.c.number == interactions.c.pair)
        query = query.where((pairs.c.low == device) | (pairs.c.high == device))
    query = query.group_by(interactions.c.pair).order_by(sa.func.count().desc(), interactions.c.pair).limit(most)
    return list((await tx.execute(query)).scalars())


async def failures(tx: Tx, pair: int, since: float, most: int) -> list[RecordedInteraction]:
    """List a pair's bad interactions after `since`, newest first."""
    query = (
        _WITH_PAIR.where(interactions.c.pair == pair, interactions.c.at > since, sa.not_(interactions.c.positive))
        .order_by(interactions.c.at.desc())
        .limit(most)
    )
    return await fetch_all(tx, query, RecordedInteraction)


def _history() -> sa.Select[Any]:
    i = interactions.c
    witnessed = i.basis == Basis.PLATFORM.value
    return sa.select(i.pair, i.positive, i.counted_seconds, i.at, witnessed, i.share).where(sa.text("share > 0"))


def _pieces(rows: Sequence[Any]) -> Pieces:
    """Convert rows to evidence; pairs by number."""
    return Pieces.of(*zip(*rows, strict=True)) if rows else Pieces.of([], [], [], [])
