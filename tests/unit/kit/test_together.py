"""Lookups made together: few reads, no stale answer, failures told to everybody who waited."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.kit.runtime.batcher import MOST_AT_ONCE, Together


class Table:
    """Rows that take a moment to read."""

    def __init__(self) -> None:
        self.rows = {str(number): number for number in range(1000)}
        self.reads: list[Sequence[str]] = []
        self.broken = False

    async def read(self, keys: Sequence[str]) -> dict[str, int]:
        self.reads.append(keys)
        seen = dict(self.rows)
        await asyncio.sleep(0.01)
        if self.broken:
            raise OSError("away")
        return {key: seen[key] for key in keys if key in seen}


def test_many_at_once_are_few_reads_and_each_gets_its_own() -> None:
    table = Table()

    async def run() -> list[int | None]:
        together = Together(table.read)
        return await asyncio.gather(*(together.find(str(number)) for number in [*range(2 * MOST_AT_ONCE), 7, 5000]))

    assert asyncio.run(run()) == [*range(2 * MOST_AT_ONCE), 7, None]
    assert len(table.reads) == 3
    assert max(map(len, table.reads)) == MOST_AT_ONCE


def test_who_asks_during_a_read_is_told_of_the_state_after_asking() -> None:
    table = Table()

    async def run() -> tuple[int | None, int | None]:
        together = Together(table.read)
        first = asyncio.create_task(together.find("1"))
        await asyncio.sleep(0.005)
        table.rows.pop("1")
        return await together.find("1"), await first

    assert asyncio.run(run()) == (None, 1)


def test_a_failed_read_is_told_to_all_and_the_next_one_works() -> None:
    table = Table()

    async def run() -> int | None:
        together = Together(table.read)
        table.broken = True
        failures = await asyncio.gather(together.find("1"), together.find("2"), return_exceptions=True)
        assert [type(failure) for failure in failures] == [OSError, OSError]
        table.broken = False
        return await together.find("3")

    assert asyncio.run(run()) == 3


def test_a_caller_that_left_disturbs_nobody() -> None:
    table = Table()

    async def run() -> int | None:
        together = Together(table.read)
        leaving = asyncio.create_task(together.find("1"))
        staying = asyncio.create_task(together.find("2"))
        await asyncio.sleep(0.005)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return await staying

    assert asyncio.run(run()) == 2
