"""Migrations, from nothing and from every stored dump: they end at the tables of the code, and lose no row."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from services.kit.database.engine import Database
from services.kit.runtime.settings import ServiceSettings
from services.trust.store import audit
from services.trust.usecases.auditing import Auditing
from tests.dumps.stored import SERVICES, Dump, count_rows, opened, versions

MOVED: dict[tuple[str, str], str | None] = {}
"""(service, table) of a dump → its name today, or None when it was dropped on purpose."""

_CATALOGUE = {
    "sqlite": "SELECT type, tbl_name, name, '' FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'",
    "postgresql": """
        SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace
        UNION SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
        UNION SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t
        JOIN pg_class c ON c.oid = tgrelid
        WHERE NOT tgisinternal AND c.relnamespace = current_schema()::regnamespace
        UNION SELECT 'column', table_name, column_name, concat_ws(' ', data_type, character_maximum_length,
        is_nullable, column_default, collation_name) FROM information_schema.columns
        WHERE table_schema = current_schema()
    """,
}
"""Everything that makes up a service's tables, also what `compare_metadata` does not look at, such as triggers."""


def metadata_of(service: str) -> sa.MetaData:
    """The tables as the code has them."""
    result: sa.MetaData = importlib.import_module(f"services.{service}.tables").metadata
    return result


def kind_of(settings: ServiceSettings) -> str:
    return "postgresql" if settings.database_url else "sqlite"


async def differences(database: Database, metadata: sa.MetaData) -> list[Any]:
    """What would have to change for the database to equal the tables of the code."""

    def compare(connection: sa.Connection) -> list[Any]:
        def ours(name: str | None, type_: str, parents: object) -> bool:
            return not (type_ == "table" and name == "alembic_version")

        options = {"include_name": ours, "compare_type": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))

    async with database.reading() as tx:
        return await tx.run_sync(compare)


async def catalogue(database: Database) -> set[tuple[str, ...]]:
    async with database.reading() as tx:
        rows = (await tx.execute(sa.text(_CATALOGUE["sqlite" if database.is_sqlite else "postgresql"]))).all()
        if not database.is_sqlite:
            return {tuple(row) for row in rows}
        columns: set[tuple[str, ...]] = set()
        for table in {str(row[1]) for row in rows}:
            for column in (await tx.execute(sa.text(f"PRAGMA table_info({table})"))).all():
                columns.add(("column", table, *(str(part) for part in column[1:])))
        return {tuple(row) for row in rows} | columns


@pytest.mark.parametrize("service", SERVICES)
async def test_every_migration_matches_its_tables(service: str, settings: ServiceSettings) -> None:
    """From an empty database, on both kinds; a second run changes nothing."""
    async with opened(settings, service) as database:
        for _ in range(2):
            await database.migrate(f"services.{service}")
            assert await differences(database, metadata_of(service)) == []
        assert set(await count_rows(database)) == set(metadata_of(service).tables)


async def test_a_table_that_lacks_a_column_is_noticed(settings: ServiceSettings) -> None:
    changed = sa.MetaData()
    for table in metadata_of("topology").tables.values():
        table.to_metadata(changed)
    changed.tables["cells"].append_column(sa.Column("colour", sa.Text))
    async with opened(settings, "topology") as database:
        await database.migrate("services.topology")
        ((act, _, table, column),) = await differences(database, changed)
    assert (act, table, column.name) == ("add_column", "cells", "colour")


@pytest.mark.parametrize("version", versions())
async def test_a_stored_platform_keeps_every_row_and_gets_the_tables_of_today(
    version: str, settings: ServiceSettings
) -> None:
    dump = Dump(version, kind_of(settings))
    await dump.load(settings)
    stored = dump.facts()["tables"]
    for service in SERVICES:
        async with opened(settings, service) as database:
            assert await count_rows(database) == stored[service]  # the dump is whole
            await database.migrate(f"services.{service}")
            assert await differences(database, metadata_of(service)) == []
            counts = await count_rows(database)
            names = {table: MOVED.get((service, table), table) for table in stored[service]}
            retained = {name: stored[service][table] for table, name in names.items() if name is not None}
            assert {name: counts.get(name) for name in retained} == retained


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("version", versions())
async def test_an_upgraded_schema_equals_one_made_from_nothing(
    version: str, service: str, settings: ServiceSettings
) -> None:
    """Triggers, checks and defaults too, which a comparison with the tables does not see."""
    async with opened(settings, service) as database:
        await database.migrate(f"services.{service}")
        fresh = await catalogue(database)
        if not database.is_sqlite:
            async with database.writing() as tx:
                for item in SERVICES:
                    await tx.execute(sa.text(f"DROP SCHEMA IF EXISTS {item} CASCADE"))
    await Dump(version, kind_of(settings)).load(settings)
    async with opened(settings, service) as database:
        await database.migrate(f"services.{service}")
        assert await catalogue(database) == fresh
    assert fresh


@pytest.mark.parametrize("version", versions())
async def test_the_books_of_a_stored_platform_balance(version: str, settings: ServiceSettings) -> None:
    dump = Dump(version, kind_of(settings))
    await dump.load(settings)
    async with opened(settings, "pricing") as database:
        await database.migrate("services.pricing")
        accounts, postings = (metadata_of("pricing").tables[name] for name in ("accounts", "postings"))
        async with database.reading() as tx:
            held = await tx.execute(sa.select(accounts.c.id, accounts.c.balance).where(accounts.c.balance != 0))
            balances = {str(row.id): int(row.balance) for row in held}
            per_account = sa.select(postings.c.account_id, sa.func.sum(postings.c.amount).label("sum"))
            posted = await tx.execute(per_account.group_by(postings.c.account_id))
            sums = {str(row.account_id): int(row.sum) for row in posted if row.sum}
    assert sum(balances.values()) == 0
    assert balances == sums
    expected = {name: amount for name, amount in dump.facts()["accounts"].items() if amount and "owner:" not in name}
    assert balances == expected


@pytest.mark.parametrize("version", versions())
async def test_the_audit_log_of_a_stored_platform_is_chained_as_it_stands(
    version: str, settings: ServiceSettings
) -> None:
    await Dump(version, kind_of(settings)).load(settings)
    async with opened(settings, "trust") as database:
        before = (await count_rows(database))["audit"]
        await database.migrate("services.trust")
        result = await Auditing(database).verify()
        assert (result.faults, result.entries) == ([], before)
        async with database.writing() as tx:
            await audit.note(tx, 1.0, "test", "nothing")
        assert (await Auditing(database).verify()).entries == before + 1
    assert before > 0
