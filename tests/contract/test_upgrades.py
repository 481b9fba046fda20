"""Migrations, from nothing and from every stored dump: they end at the tables of the code, and lose no row."""

from __future__ import annotations

import base64
import importlib
import json
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from coterie.records.words import PolicyLearner, PrivacyUnit, Role, RoundState, TaskState
from coterie_api.aggregation.v1.aggregation_pb2 import WorkItem
from coterie_api.parameters.v1.parameters_pb2 import RadioParameters
from coterie_api.topology.v1.topology_pb2 import Cell, Plan, TrainPolicyRequest
from coterie_api.words.v1.words_pb2 import POLICY_LEARNER_IQL, POLICY_PENALTY_FIXED, ROLE_UNSPECIFIED
from services.aggregation.store import tasks
from services.gateway.wire.convert import to_json
from services.kit.database import Database
from services.kit.paging import Page
from services.kit.proto_json import former_text, to_dict
from services.kit.settings import ServiceSettings
from services.kit.words import word
from services.pricing.domain.records import Terms
from services.pricing.store import quotes
from services.topology.commands.train_policy import Job
from services.topology.store import policies
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
    found: sa.MetaData = importlib.import_module(f"services.{service}.tables").metadata
    return found


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
            kept = {name: stored[service][table] for table, name in names.items() if name is not None}
            assert {name: counts.get(name) for name in kept} == kept


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
                for each in SERVICES:
                    await tx.execute(sa.text(f"DROP SCHEMA IF EXISTS {each} CASCADE"))
    await Dump(version, kind_of(settings)).load(settings)
    async with opened(settings, service) as database:
        await database.migrate(f"services.{service}")
        assert await catalogue(database) == fresh
    assert fresh


async def test_the_plans_of_the_first_release_say_what_they_were_played_for(settings: ServiceSettings) -> None:
    """0.1.0 told stakes and worth alone in a plan's details only, as JSON text; settling its rounds needs fields."""
    dump = Dump("0.1.0", kind_of(settings))
    await dump.load(settings)
    stored = sa.select(metadata_of("topology").tables["plans"].c.plan).order_by("task_id", "version")
    async with opened(settings, "topology") as database:
        async with database.reading() as tx:
            before = [Plan.FromString(data) for data in (await tx.execute(stored)).scalars()]
        await database.migrate("services.topology")
        async with database.reading() as tx:
            plans = [Plan.FromString(data) for data in (await tx.execute(stored)).scalars()]
    details = [json.loads(former_text(plan, 7) or "{}") for plan in before]
    shown = [to_json(plan)["details"] for plan in plans]
    assert [{name: now[name] for name in told} for now, told in zip(shown, details, strict=True)] == details
    assert any("stakes" in told for told in details)
    for plan, told in zip(plans, details, strict=True):
        assert plan.HasField("stakes") == ("stakes" in told)
        if "stakes" in told:
            assert {field: getattr(plan.stakes, field) for field in told["stakes"]} == told["stakes"]
            assert {seat.device_id: seat.alone for seat in plan.seats} == told["alone"]


async def test_an_unfinished_training_of_the_first_release_goes_on_with_what_it_was_asked(
    settings: ServiceSettings,
) -> None:
    """0.1.0 stored the request with its learner and penalty as words and its radio as JSON text."""
    asked = b"\x0a\x03iql" + b"\x22\x05fixed" + b"\x28\x06" + b"\x3a\x17" + b'{"payload_bits": 1e+06}'
    cell = Cell(id="roof", blocks=4).SerializeToString()
    document = {"request": base64.b64encode(asked).decode(), "cells": [base64.b64encode(cell).decode()]}
    row = {"id": "pol_1", "learner": "iql", "layout": "l", "state": "training", "progress": 0.5, "reward": -1.0}
    row |= {
        "created_at": 1.0,
        "reason": "",
        "digest": "d",
        "request": json.dumps(document | {"checkpoint": ""}).encode(),
    }
    await Dump("0.1.0", kind_of(settings)).load(settings)
    async with opened(settings, "topology") as database:
        async with database.writing() as tx:
            columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in row]
            await tx.execute(sa.table("policies", *columns).insert(), [row])
        await database.migrate("services.topology")
        async with database.reading() as tx:
            policy = await policies.find(tx, "pol_1")
    assert policy is not None
    assert policy.learner is PolicyLearner.IQL
    job = Job.from_bytes(policy.request)
    assert job.request == TrainPolicyRequest(
        learner=POLICY_LEARNER_IQL, penalty=POLICY_PENALTY_FIXED, users=6, radio=RadioParameters(payload_bits=1e6)
    )
    assert [each.id for each in job.cells] == ["roof"]


async def test_roles_in_the_plans_and_open_work_of_the_first_release_are_those_it_told(
    settings: ServiceSettings,
) -> None:
    """0.1.0 kept roles as words in stored messages; its rounds in the middle go on with them as enums."""
    dump = Dump("0.1.0", kind_of(settings))
    await dump.load(settings)
    p, r = (metadata_of("aggregation").tables[name] for name in ("participations", "rounds"))
    under_way = (r.c.task_id == p.c.task_id) & (r.c.number == p.c.round) & (r.c.state == RoundState.OPEN)
    async with opened(settings, "aggregation") as database:
        await database.migrate("services.aggregation")
        async with database.reading() as tx:
            rows = (await tx.execute(sa.select(p.c.role, p.c.work).join_from(p, r, under_way))).all()
    works = [(role, WorkItem.FromString(work)) for role, work in rows]
    assert [role for role, _ in works] == [word(Role, item.role) for _, item in works]
    assert {role for role, _ in works} >= {Role.SOLO, Role.HEAD, Role.MEMBER}
    peers = [(role, word(Role, peer.role)) for role, item in works for peer in item.peers]
    assert set(peers) == {(Role.HEAD, Role.MEMBER), (Role.MEMBER, Role.HEAD)}
    async with opened(settings, "topology") as database:
        await database.migrate("services.topology")
        async with database.reading() as tx:
            plans = await tx.execute(sa.select(metadata_of("topology").tables["plans"].c.plan))
            seats = [seat for plan in plans.scalars() for seat in Plan.FromString(plan).seats]
    assert {word(Role, seat.role) for seat in seats} >= {Role.SOLO, Role.HEAD, Role.MEMBER}
    assert not any(seat.role == ROLE_UNSPECIFIED for seat in seats)


@pytest.mark.parametrize("version", versions())
async def test_open_work_of_a_stored_platform_tells_devices_the_parameters_it_told_them(
    version: str, settings: ServiceSettings
) -> None:
    """0.1.0 kept them as JSON text in stored messages."""
    await Dump(version, kind_of(settings)).load(settings)
    p, r, t = (metadata_of("aggregation").tables[name] for name in ("participations", "rounds", "tasks"))
    under_way = (r.c.task_id == p.c.task_id) & (r.c.number == p.c.round) & (r.c.state == RoundState.OPEN)
    work = sa.select(p.c.task_id, p.c.device_id, p.c.work).join_from(p, r, under_way)
    async with opened(settings, "aggregation") as database:
        async with database.reading() as tx:
            before = {row[:2]: WorkItem.FromString(row.work) for row in await tx.execute(work)}
        await database.migrate("services.aggregation")
        async with database.reading() as tx:
            found = {row[:2]: WorkItem.FromString(row.work) for row in await tx.execute(work)}
            stored = (await tx.execute(sa.select(t.c.id, t.c.specification))).all()
            read = {task_id: await tasks.find_task(tx, task_id) for task_id, _ in stored}
    units = {place: former_text(item, 21) for place, item in before.items()}
    assert {place: word(PrivacyUnit, item.privacy_unit) for place, item in found.items()} == units
    told = {place: given(json.loads(former_text(item, 20))) for place, item in before.items()}
    assert any("privacy" in parameters for parameters in told.values())
    assert {place: to_dict(item.parameters) for place, item in found.items()} == told
    for task_id, specification in stored:
        task = read[task_id]
        assert task is not None
        assert task.specification.parameters == given(json.loads(specification["parameters_json"]))


def given(document: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A stored object without what it only says is not given."""
    return {
        section: {key: value for key, value in keys.items() if value is not None or key == "max_degree"}
        for section, keys in document.items()
    }


@pytest.mark.parametrize("version", versions())
async def test_a_refused_update_of_a_stored_platform_is_still_held_against_its_device(
    version: str, settings: ServiceSettings
) -> None:
    """Until a column says so, the first release knew it by how the note began."""
    await Dump(version, kind_of(settings)).load(settings)
    p = metadata_of("aggregation").tables["participations"]
    async with opened(settings, "aggregation") as database:
        async with database.writing() as tx:
            ids = sa.select(p.c.task_id, p.c.round, p.c.device_id).where(p.c.state == "assigned").limit(1)
            place = (await tx.execute(ids)).one()
            here = [
                column == value for column, value in zip((p.c.task_id, p.c.round, p.c.device_id), place, strict=True)
            ]
            await tx.execute(sa.update(p).where(*here).values(note="rejected: the update is not finite"))
        await database.migrate("services.aggregation")
        async with database.reading() as tx:
            refused = (await tx.execute(sa.select(p.c.task_id, p.c.round, p.c.device_id).where(p.c.refused))).all()
    assert refused == [place]


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
    told = {name: amount for name, amount in dump.facts()["accounts"].items() if amount and "owner:" not in name}
    assert balances == told


async def test_quotes_of_the_first_release_are_read_with_their_terms(settings: ServiceSettings) -> None:
    """Terms of an offer were JSON text in the message and are still in the row."""
    await Dump("0.1.0", kind_of(settings)).load(settings)
    text = (
        '{"variance_low": 0.5, "variance_high": 9.0, "others_variance": 2.5, "trust": [1.0, 0.5], "hidden": [4.0, 3.0]}'
    )
    table = metadata_of("pricing").tables["quotes"]
    async with opened(settings, "pricing") as database:
        await database.migrate("services.pricing")
        async with database.writing() as tx:
            first = (await tx.execute(sa.select(table).limit(1))).one()
            stored = await quotes.find(tx, first.task_id, first.round)
            assert stored is not None
            assert {offer.terms for offer in stored.offers} == {None}
            offers = [[*offer[:-1], text] for offer in json.loads(first.offers)]
            here = (table.c.task_id == first.task_id) & (table.c.round == first.round)
            await tx.execute(sa.update(table).where(here).values(offers=json.dumps(offers)))
            told = await quotes.find(tx, first.task_id, first.round)
    assert told is not None
    assert {offer.terms for offer in told.offers} == {Terms(2.5, 0.5, 9.0, (1.0, 0.5), (4.0, 3.0))}


async def test_tasks_of_the_first_release_are_open_and_read_as_they_were(settings: ServiceSettings) -> None:
    """A task from before tasks said who may join is open to any device, and equal to the same one asked for again."""
    await Dump("0.1.0", kind_of(settings)).load(settings)
    async with opened(settings, "aggregation") as database:
        await database.migrate("services.aggregation")
        async with database.reading() as tx:
            page = Page(100, "")
            everything = await tasks.list_tasks(tx, page, state=TaskState(""), publisher="")
            seen = await tasks.list_tasks(
                tx, page, state=TaskState(""), publisher="", joinable=("dev_stranger", "own_stranger")
            )
    assert everything
    assert seen == everything
    assert {(task.specification.join_by, task.specification.invited) for task in seen} == {("open", ())}


@pytest.mark.parametrize("version", versions())
async def test_the_audit_log_of_a_stored_platform_is_chained_as_it_stands(
    version: str, settings: ServiceSettings
) -> None:
    await Dump(version, kind_of(settings)).load(settings)
    async with opened(settings, "trust") as database:
        before = (await count_rows(database))["audit"]
        await database.migrate("services.trust")
        found = await Auditing(database).verify()
        assert (found.faults, found.entries) == ([], before)
        async with database.writing() as tx:
            await audit.note(tx, 1.0, "test", "nothing")
        assert (await Auditing(database).verify()).entries == before + 1
    assert before > 0


async def test_reports_of_the_first_release_keep_their_meaning(settings: ServiceSettings) -> None:
    """What an admin or an import said is vouched for, the platform's is witnessed, a device's good word needs the other
    end's; all that counts counts fully. Sums are made anew at the next start."""
    await Dump("0.1.0", kind_of(settings)).load(settings)
    tables = metadata_of("trust").tables
    i, pairs = tables["interactions"], tables["pairs"]
    async with opened(settings, "trust") as database:
        async with database.writing() as tx:
            pair = (await tx.execute(sa.select(pairs.c.number, pairs.c.low, pairs.c.high).limit(1))).one()
            said = {"pair": pair.number, "positive": True, "duration_seconds": 600.0, "kind": "meeting", "note": ""}
            rows = [
                said | {"reporter": pair.low, "id": "one", "at": 1000.0},
                said | {"reporter": pair.high, "id": "one", "at": 1500.0, "duration_seconds": 30.0},
                said | {"reporter": pair.low, "id": "alone", "at": 9000.0},
                said | {"reporter": pair.high, "id": "bad", "at": 9000.0, "positive": False},
            ]
            old = [column for column in i.c if column.name not in ("number", "basis", "share", "counted_seconds")]
            await tx.execute(sa.insert(sa.table("interactions", *(sa.column(c.name) for c in old))), rows)
        await database.migrate("services.trust")
        async with database.reading() as tx:
            query = sa.select(i.c.id, i.c.reporter, i.c.basis, i.c.share, i.c.counted_seconds).where(i.c.reporter > 0)
            devices = {(row.id, row.reporter): tuple(row[2:]) for row in await tx.execute(query)}
            others = (await tx.execute(sa.select(i.c.basis, i.c.id, i.c.share).where(i.c.reporter == 0))).all()
            remade = (await tx.execute(sa.select(tables["social_version"].c.decay_rate))).scalar_one()
            friends = (await tx.execute(sa.select(tables["friendships"]))).one()
    assert devices == {
        ("one", pair.low): ("both", 1.0, 30.0),
        ("one", pair.high): ("half", 0.0, 0.0),
        ("alone", pair.low): ("waiting", 0.0, 0.0),
        ("bad", pair.high): ("one", 1.0, 600.0),
    }
    assert {(row.basis, row.id.startswith("tsk_"), row.share) for row in others} == {
        ("admin", False, 1.0),
        ("platform", True, 1.0),
    }
    assert remade is None
    assert friends.strength == friends.low_strength == friends.high_strength > 0
