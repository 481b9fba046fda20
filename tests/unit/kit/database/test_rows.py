"""Rows and records: the same on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa

from coterie.records import PrivacyClaim
from coterie.records.enums import PrivacyMechanism, PrivacyUnit
from services.kit.database.engine import Database
from services.kit.database.rows import (
    RecordsColumn,
    batches,
    columns,
    fetch_all,
    fetch_one,
    insert_rows,
    update_rows,
    upsert,
)
from services.kit.runtime.settings import ServiceSettings

THINGS = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("weight", sa.Double, nullable=False),
    sa.Column("good", sa.Boolean, nullable=False),
    sa.Column("price", sa.Integer),
)


@dataclass(frozen=True, slots=True)
class Thing:
    """Its fields stand in another order than the columns, and one has another name."""

    name: str
    number: int
    good: bool
    price_microcredits: int | None
    weight: float


COLUMNS = columns(Thing, THINGS, price_microcredits=THINGS.c.price)
ROWS = [(n, f"thing {n}; DROP TABLE things", n / 3, n % 2 == 0, None if n % 5 else n) for n in range(1, 1001)]


@pytest.fixture
async def database(settings: ServiceSettings) -> AsyncIterator[Database]:
    opened = Database(settings.database_for("kit"), "kit")
    await opened.change_tables(THINGS.metadata.create_all)
    async with opened.writing() as tx:
        await insert_rows(tx, list(THINGS.c), ROWS)
    yield opened
    await opened.close()


def thing(row: tuple[int, str, float, bool, int | None]) -> Thing:
    number, name, weight, good, price = row
    return Thing(name, number, good, price, weight)


async def test_records_come_back_as_they_were_written(database: Database) -> None:
    async with database.reading() as tx:
        query = sa.select(*COLUMNS).order_by(THINGS.c.number)
        assert await fetch_all(tx, query, Thing) == [thing(row) for row in ROWS]
        assert await fetch_one(tx, query.where(THINGS.c.number == 7), Thing) == thing(ROWS[6])
        assert await fetch_one(tx, query.where(THINGS.c.number == 7777), Thing) is None


async def test_a_conflict_changes_what_it_says_and_nothing_else(database: Database) -> None:
    async with database.writing() as tx:
        again = "(number) DO UPDATE SET weight = things.weight + excluded.weight"
        await insert_rows(tx, list(THINGS.c), [(3, "other", 10.0, False, 0), (2000, "new", 1.0, True, None)], again)
        await insert_rows(tx, list(THINGS.c), [(4, "other", 10.0, False, 0)], "(number) DO NOTHING")
        await upsert(tx, THINGS, [thing_row(5, "renamed")], ["number"], only=["name"])
    async with database.reading() as tx:
        result = {item.number: item for item in await fetch_all(tx, sa.select(*COLUMNS), Thing)}
    assert result[3] == Thing(ROWS[2][1], 3, False, None, 11.0)
    assert result[4] == thing(ROWS[3])
    assert result[5] == Thing("renamed", 5, False, 5, 5 / 3)
    assert result[2000] == Thing("new", 2000, True, None, 1.0)


def thing_row(number: int, name: str) -> dict[str, object]:
    return {"number": number, "name": name, "weight": 0.0, "good": True, "price": 0}


async def test_each_row_of_an_update_changes_its_own(database: Database) -> None:
    statement = sa.update(THINGS).where(THINGS.c.number == sa.bindparam("which"))
    statement = statement.values(weight=sa.bindparam("new_weight"), name=sa.bindparam("new_name"))
    async with database.writing() as tx:
        await update_rows(tx, statement, ("which", "new_name", "new_weight"), [(1, "one", 1.5), (2, "two", 2.5)])
        await update_rows(tx, statement, ("which", "new_name", "new_weight"), [])
    async with database.reading() as tx:
        result = await fetch_all(tx, sa.select(*COLUMNS).where(THINGS.c.number <= 3).order_by(THINGS.c.number), Thing)
    assert [(item.name, item.weight) for item in result] == [("one", 1.5), ("two", 2.5), (ROWS[2][1], 1.0)]


def test_a_field_without_a_column_is_found_out_at_once() -> None:
    with pytest.raises(KeyError, match="price_microcredits"):
        columns(Thing, THINGS)


def test_batches_hold_every_item_once_in_order() -> None:
    assert [list(part) for part in batches(range(7), 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(batches([])) == []


CLAIMS = sa.Table(
    "claims",
    sa.MetaData(),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("claims", RecordsColumn(PrivacyClaim), nullable=False),
)
CLAIM = PrivacyClaim(mechanism=PrivacyMechanism.ZCDP, parameter=0.1, unit=PrivacyUnit.EXAMPLE)


async def test_record_column_round_trips_records_and_accepts_documents(database: Database) -> None:
    first_release = {"mechanism": "zcdp", "parameter": 0.1, "unit": "example", "sampling_rate": 0.0, "steps": 0}
    async with database.writing() as tx:
        await tx.run_sync(CLAIMS.metadata.create_all)
        given = [[], [CLAIM, CLAIM], [first_release], (CLAIM,)]
        await tx.execute(CLAIMS.insert(), [{"number": n, "claims": claims} for n, claims in enumerate(given)])
        result = (await tx.execute(sa.select(CLAIMS.c.claims).order_by(CLAIMS.c.number))).scalars().all()
    assert result == [[], [CLAIM, CLAIM], [CLAIM], [CLAIM]]
