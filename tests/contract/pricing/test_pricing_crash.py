"""kill -9 in the middle of a settlement: it is applied wholly or not at all, and a repeat pays exactly once."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from coterie.privacy.accounting import zcdp_charge
from coterie.records.enums import ParticipationState, QuoteStatus
from services.kit.database.engine import Database
from services.kit.runtime.clock import SystemClock
from services.kit.runtime.settings import ServiceSettings
from services.pricing.domain.ledger_settlement import Work
from services.pricing.domain.records import Offer, Quote, Settled
from services.pricing.store import ledger_store, payments, quotes
from services.pricing.usecases.accounts import Accounts
from services.pricing.usecases.reports import Reports
from services.pricing.usecases.settling import Settling

DEVICES = 40
WORK = [
    Work(
        f"dev_{k:02}",
        "own_1",
        ParticipationState.DELIVERED,
        budget=2.0,
        charges=(zcdp_charge("tsk_1", 1, "update", "example", 2.0),),
    )
    for k in range(DEVICES)
]

# A process that settles and kills itself with SIGKILL after the named call: no handler, no clean-up.
VICTIM = """
import asyncio, os, signal, sys
sys.path.insert(0, os.getcwd())
from services.kit.runtime.settings import ServiceSettings
from services.pricing.store import ledger_store, privacy
from tests.contract.pricing.test_pricing_crash import settle

places = {"ledger": (ledger_store, "append"), "privacy": (privacy, "add_charges")}
module, name = places[sys.argv[3]]
original = getattr(module, name)

async def killed(*arguments, **options):
    await original(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module, name, killed)
asyncio.run(settle(ServiceSettings(data_dir=sys.argv[1], database_url=sys.argv[2])))
"""


async def settle(settings: ServiceSettings) -> Settled:
    """Settle the round without migrating the database."""
    database = Database(settings.database_for("pricing"), "pricing")
    try:
        return await Settling(database, SystemClock()).settle("tsk_1", 1, WORK)
    finally:
        await database.close()


async def migrated(settings: ServiceSettings) -> Database:
    """The pricing engine's database."""
    database = Database(settings.database_for("pricing"), "pricing")
    await database.migrate("services.pricing")
    return database


async def prepare(database: Database) -> None:
    accounts = Accounts(database, SystemClock())
    await accounts.deposit("pub_1", 100_000, "a")
    await accounts.open_escrow("tsk_1", "pub_1", 100_000)
    offers = tuple(Offer(w.device_id, 100, most_microcredits=1_000) for w in WORK)
    async with database.writing() as connection:
        await quotes.add(connection, Quote("tsk_1", 1, "stackelberg", QuoteStatus.OK, offers), 0.0)


async def die_at(place: str, settings: ServiceSettings) -> int:
    """Exit status of a process that is killed after the call that `place` names."""
    arguments = ("-c", VICTIM, str(settings.data_dir), settings.database_url, place)
    victim = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=Path(__file__).parents[3])
    return await victim.wait()


async def test_a_killed_settlement_leaves_nothing_and_its_repeat_pays_once(settings: ServiceSettings) -> None:
    database = await migrated(settings)
    await prepare(database)
    deaths = await asyncio.gather(*(die_at(place, settings) for place in ("ledger", "privacy")))
    assert deaths == [-signal.SIGKILL] * 2
    async with database.reading() as connection:
        assert await payments.find_settlement(connection, "tsk_1", 1) is None
        assert await payments.count_payments(connection) == 0
        escrow = await ledger_store.find_account(connection, "escrow:tsk_1")
    assert escrow is not None
    assert escrow.balance_microcredits == 100_000
    settled = await asyncio.gather(*(settle(settings) for _ in range(3)))
    assert sum(item.fresh for item in settled) == 1
    assert {item.settlement.paid_microcredits for item in settled} == {DEVICES * 200}
    reports = Reports(database, SystemClock())
    verdict = await reports.verify()
    assert (verdict.faults, verdict.entries, verdict.postings) == ([], 3, 4 + 1 + DEVICES)
    report = await reports.privacy("dev_00", 1e-6)
    assert report.tasks[0].rounds == 1
    await database.close()


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_two_processes_write_one_chain(settings: ServiceSettings) -> None:
    """SQLite's writers queue in the file: deposits through two handles interleave without a fork."""
    first, second = await migrated(settings), await migrated(settings)
    books = [Accounts(first, SystemClock()), Accounts(second, SystemClock())]
    await asyncio.gather(*(books[k % 2].deposit("pub_1", k + 1, f"key-{k}") for k in range(20)))
    verdict = await Reports(first, SystemClock()).verify()
    assert (verdict.faults, verdict.entries) == ([], 20)
    await first.close()
    await second.close()
