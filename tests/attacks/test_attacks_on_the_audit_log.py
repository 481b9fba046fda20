"""Attacks on the audit log with write access to the database: verification detects each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from coterie_api.trust.v1 import trust_pb2 as pb
from services.kit.database.engine import Database
from services.kit.errors import PermissionDenied
from services.kit.rpc.principal import Principal, set_principal
from services.trust.domain.audit_chain import GENESIS, AuditCheck, AuditHead, hash_entry
from services.trust.domain.records import AuditEntry
from services.trust.tables import audit, audit_head
from tests.contract.trust.conftest import Hand, World, open_world, world

__all__ = ["world"]
WHO = AuditEntry(1, 2.5, "admin", "adm_1", "key.create", "key_1", "req-1", "publisher hospital")


@asynccontextmanager
async def tampering(world: World) -> AsyncIterator[Any]:
    """A transaction past the registry, as an intruder with the database's password has it."""
    database = Database(world.settings.database_for("trust"), "trust")
    async with database.writing() as tx:
        yield tx
    await database.close()


async def verify(world: World) -> pb.VerifyAuditReply:
    set_principal(Principal("admin", "adm_1"))
    return await world.registry.VerifyAudit(pb.VerifyAuditRequest())


async def act(world: World, times: int) -> None:
    """Acts that are written down."""
    set_principal(Principal("admin", "adm_1"))
    for number in range(times):
        await world.registry.CreateOwner(pb.CreateOwnerRequest(name=f"owner {number}"))


async def test_whatever_is_done_to_the_log_shows(world: World) -> None:
    await act(world, 5)
    honest = await verify(world)
    assert (honest.sound, list(honest.faults)) == (True, [])
    async with tampering(world) as tx:
        rows = [row._asdict() for row in (await tx.execute(sa.select(audit).order_by(audit.c.number))).all()]
        head = (await tx.execute(sa.select(audit_head))).one()._asdict()
    assert honest.entries == len(rows) >= 5
    middle, last = rows[2]["number"], rows[-1]["number"]
    forged = rows[2] | {"number": last + 1, "note": "forged"}
    attacks: dict[str, sa.Executable] = {
        f"entry {middle}": audit.update().where(audit.c.number == middle).values(note="nothing happened"),
        f"entry {middle + 1}": audit.delete().where(audit.c.number == middle),
        "last entry": audit.delete().where(audit.c.number == last),
        f"entry {last + 1}": audit.insert().values(forged),
        "entries: the log's head records": audit.delete(),
        "head: the log's head records": audit_head.update().values(hash=rows[1]["hash"]),
    }
    for fault_text, attack in attacks.items():
        async with tampering(world) as tx:
            await tx.execute(attack)
        result = await verify(world)
        assert not result.sound
        assert any(fault_text in fault for fault in result.faults), (fault_text, result.faults)
        async with tampering(world) as tx:  # as it was
            await tx.execute(audit.delete())
            await tx.execute(audit.insert(), rows)
            await tx.execute(audit_head.update().values(head))
        assert (await verify(world)).sound
    await act(world, 7)
    assert (await verify(world)).entries == len(rows) + 2  # two owners are new; those that exist are no act


async def test_writers_at_once_in_two_processes_leave_one_chain(world: World) -> None:
    """On PostgreSQL a second registry on the same tables; on SQLite, which one process owns, one."""
    worlds = [world]
    if world.settings.database_url:
        second, channel = await open_world(world.settings, Hand())
        worlds.append(second)
    before = (await verify(world)).entries
    set_principal(Principal("admin", "adm_1"))
    names = [f"owner {number}" for number in range(40)]
    await asyncio.gather(
        *(
            worlds[number % len(worlds)].registry.CreateOwner(pb.CreateOwnerRequest(name=name))
            for number, name in enumerate(names)
        )
    )
    result = await verify(world)
    assert (result.sound, result.entries) == (True, before + 40)
    if len(worlds) > 1:
        await channel.close()
        await second.app.stop()


async def test_only_admins_verify(world: World) -> None:
    for caller in (Principal("publisher", "pub_1"), Principal("device", "dev_1", "own_1")):
        set_principal(caller)
        with pytest.raises(PermissionDenied):
            await world.registry.VerifyAudit(pb.VerifyAuditRequest())


texts = st.text(max_size=20)


@given(st.data())
def test_any_other_entry_has_another_hash(data: st.DataObject) -> None:
    """For every field and every other value: H(previous, entry') ≠ H(previous, entry)."""
    field = data.draw(st.sampled_from(fields(AuditEntry)))
    now = getattr(WHO, field.name)
    values = texts if isinstance(now, str) else st.integers(0, 2**53) if isinstance(now, int) else st.floats(0, 1e12)
    change: dict[str, Any] = {field.name: data.draw(values.filter(lambda value: value != now))}
    other = replace(WHO, **change)
    assert hash_entry(GENESIS, other) != hash_entry(GENESIS, WHO) != hash_entry(hash_entry(GENESIS, WHO), WHO)


@given(st.lists(st.builds(AuditEntry, st.integers(), st.floats(0, 1e12), *[texts] * 6), max_size=8), st.data())
def test_a_chain_is_sound_and_no_part_of_it_is(entries: list[AuditEntry], data: st.DataObject) -> None:
    chain, last = [], GENESIS
    for entry in entries:
        last = hash_entry(last, entry)
        chain.append((entry, last))
    head = AuditHead(len(chain), chain[-1][0].number if chain else 0, last)
    whole = AuditCheck()
    whole.take(chain)
    assert whole.verdict(head).sound
    if chain:
        gone = data.draw(st.integers(0, len(chain) - 1))
        part = AuditCheck()
        part.take(chain[:gone] + chain[gone + 1 :])
        assert not part.verdict(head).sound


def test_a_hash_worked_by_hand() -> None:
    """printf '%s\\n%s' GENESIS '[1, 2.5, "admin", …]' | sha256sum"""
    assert GENESIS == "7e9e38fa15eb919ace8facb4911e65b9ed73cd8137385ecfe51ad566c1cf100b"
    assert hash_entry(GENESIS, WHO) == "9b1960838976c25967d41a7fdccfedace6a6ba2404592a28314cbe0ff6d0b4eb"
