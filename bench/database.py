"""CPU time of short transactions on SQLite: `python bench/database.py`.

Prints microseconds of CPU a transaction, for reads and writes of one row with one statement and with four.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable

import sqlalchemy as sa

from services.kit.database.engine import Database

TRANSACTIONS = 2000
ROWS = 1000
TABLE = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False),
    sa.Column("weight", sa.Double, nullable=False),
    sa.Column("details", sa.JSON, nullable=False),
)
FIND = sa.select(TABLE).where(TABLE.c.number == sa.bindparam("wanted"))
CHANGE = TABLE.update().where(TABLE.c.number == sa.bindparam("wanted")).values(weight=sa.bindparam("to"))


async def read(database: Database, start: int, statements: int) -> None:
    async with database.reading() as tx:
        for number in range(start, start + statements):
            (await tx.execute(FIND, {"wanted": number % ROWS})).one()


async def write(database: Database, start: int, statements: int) -> None:
    async with database.writing() as tx:
        for number in range(start, start + statements):
            await tx.execute(CHANGE, {"wanted": number % ROWS, "to": start / 2})


async def measure(database: Database, run: Callable[[Database, int, int], Awaitable[None]], statements: int) -> None:
    for turn in range(2):  # the first warms up
        cpu, wall = time.process_time(), time.perf_counter()
        for start in range(TRANSACTIONS):
            await run(database, start, statements)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        if turn:
            microseconds = f"{cpu / TRANSACTIONS * 1e6:4.0f} µs CPU, {wall / TRANSACTIONS * 1e6:5.0f} µs elapsed"
            print(f"{run.__name__:5} of {statements} statements: {microseconds}")


async def main() -> None:
    """Measure on a new database."""
    with tempfile.TemporaryDirectory(prefix="coterie-bench-") as folder:
        database = Database(f"sqlite:///{folder}/bench.db", "bench")
        await database.change_tables(TABLE.metadata.create_all)
        async with database.writing() as tx:
            rows = [{"number": n, "name": f"thing {n}", "weight": 0.5, "details": {}} for n in range(ROWS)]
            await tx.execute(TABLE.insert(), rows)
        for run in (read, write):
            for statements in (1, 4):
                await measure(database, run, statements)
        await database.close()


if __name__ == "__main__":
    asyncio.run(main())
