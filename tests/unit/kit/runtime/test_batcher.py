"""Concurrent calls share batches: order, sizes, pauses, errors and cancelled callers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.kit.rpc.principal import Principal, acting_as, current_principal
from services.kit.runtime.batcher import Batcher


class Table:
    """Doubles numbers after a moment; refuses 13 and, when broken, everything."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.roles: list[str] = []
        self.starts: list[float] = []
        self.broken = False
        self.factor = 2

    async def run(self, items: Sequence[int]) -> list[int | Exception]:
        self.starts.append(asyncio.get_running_loop().time())
        self.batches.append(list(items))
        self.roles.append(current_principal().role)
        factor = self.factor
        await asyncio.sleep(0.01)
        if self.broken:
            raise OSError("away")
        return [ValueError(item) if item == 13 else factor * item for item in items]


@pytest.fixture
def table() -> Table:
    return Table()


async def test_concurrent_calls_share_batches_and_get_their_own_result(table: Table) -> None:
    batcher = Batcher(table.run, size=200)
    items = [*range(20, 420), 7, 7]
    assert await asyncio.gather(*map(batcher.add, items)) == [2 * item for item in items]
    assert list(map(len, table.batches)) == [200, 200, 2]
    assert [item for batch in table.batches for item in batch] == items


async def test_item_added_during_a_batch_is_handled_by_the_next(table: Table) -> None:
    batcher = Batcher(table.run, size=200)
    first = batcher.add(1)
    await asyncio.sleep(0.005)
    table.factor = 3
    assert await batcher.add(1) == 3
    assert await first == 2


async def test_error_of_a_batch_reaches_all_its_callers_and_the_next_batch_works(table: Table) -> None:
    batcher = Batcher(table.run, size=200)
    table.broken = True
    failures = await asyncio.gather(batcher.add(1), batcher.add(2), return_exceptions=True)
    assert [type(failure) for failure in failures] == [OSError, OSError]
    table.broken = False
    assert await batcher.add(3) == 6


async def test_error_of_one_item_reaches_its_own_caller(table: Table) -> None:
    batcher = Batcher(table.run, size=200)
    one, refused, two = await asyncio.gather(*map(batcher.add, (1, 13, 2)), return_exceptions=True)
    assert (one, two) == (2, 4)
    assert isinstance(refused, ValueError)


async def test_cancelled_caller_leaves_the_others_alone(table: Table) -> None:
    batcher = Batcher(table.run, size=1)
    running, queued, staying = (batcher.add(number) for number in (1, 2, 3))
    await asyncio.sleep(0.005)
    running.cancel()
    queued.cancel()
    assert await staying == 6
    assert table.batches == [[1], [3]]


async def test_pause_separates_the_starts_of_batches(table: Table) -> None:
    batcher = Batcher(table.run, size=2, pause_seconds=0.1)
    await batcher.add(1)
    await batcher.add(2)
    first, second = table.starts
    assert second - first >= 0.1


async def test_full_batch_starts_without_a_pause(table: Table) -> None:
    batcher = Batcher(table.run, size=2, pause_seconds=3600.0)
    await batcher.add(1)
    async with asyncio.timeout(60):
        assert await asyncio.gather(*map(batcher.add, (3, 4))) == [6, 8]


async def test_batch_acts_for_the_platform_not_for_a_caller(table: Table) -> None:
    batcher = Batcher(table.run, size=2)
    with acting_as(Principal("device", "dev_1")):
        await batcher.add(1)
    assert table.roles == ["service"]
