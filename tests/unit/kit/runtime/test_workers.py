"""Worker processes: the same answers, errors as they are, and nothing left behind."""

import asyncio
import math
import os
import signal
import time
from collections.abc import AsyncIterator

import psutil
import pytest

from services.kit.errors import InvalidInput
from services.kit.rpc.principal import Principal, acting_as
from services.kit.runtime.whatif import UnknownSolver, answer
from services.kit.runtime.workers import TooManyQuestions, WorkerLost, Workers


def about_me(_: int) -> tuple[int, int]:
    return os.getpid(), os.nice(0)


def refuse(message: str) -> None:
    raise InvalidInput(message, details={"field": "x"})


class Awkward(Exception):
    """Cannot be rebuilt from its message."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def refuse_awkwardly() -> None:
    raise Awkward(1, 2)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    pool = Workers(2, niceness=7, per_caller=3)
    yield pool
    await pool.close()


async def test_a_function_runs_elsewhere_stands_back_and_the_process_is_kept(workers: Workers) -> None:
    pid, niceness = await workers.run(about_me, 0)
    assert pid != os.getpid()
    assert niceness == os.nice(0) + 7
    assert await workers.run(about_me, 0) == (pid, niceness)
    assert await workers.run(math.factorial, 20) == math.factorial(20)


async def test_errors_come_back_as_they_are(workers: Workers) -> None:
    with pytest.raises(InvalidInput) as caught:
        await workers.run(refuse, "no")
    assert (caught.value.message, caught.value.details) == ("no", {"field": "x"})
    with pytest.raises(UnknownSolver):
        await workers.run(answer, {}, "nothing", "{}")
    with pytest.raises(RuntimeError, match="1 and 2"):
        await workers.run(refuse_awkwardly)


async def test_an_abandoned_call_kills_its_worker_and_frees_its_place(workers: Workers) -> None:
    pid, _ = await workers.run(about_me, 0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await workers.run(time.sleep, 600.0)
    async with asyncio.timeout(30):
        while psutil.pid_exists(pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        assert (await workers.run(about_me, 0))[0] != pid


async def test_more_calls_than_workers_wait_their_turn(workers: Workers) -> None:
    started = time.monotonic()
    with acting_as(Principal("service", "a")):
        first = [asyncio.create_task(workers.run(time.sleep, 0.3)) for _ in range(3)]
    await asyncio.gather(*first)
    assert time.monotonic() - started >= 0.6


async def test_one_caller_cannot_have_everything_under_way(workers: Workers) -> None:
    with acting_as(Principal("publisher", "greedy")):
        held = [asyncio.create_task(workers.run(time.sleep, 600.0)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyQuestions, match="3 questions under way"):
            await workers.run(about_me, 0)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    with acting_as(Principal("publisher", "greedy")):
        assert (await workers.run(about_me, 0))[0]


async def test_a_dead_worker_is_reported_and_replaced(workers: Workers) -> None:
    with pytest.raises(WorkerLost, match="ask again"):
        await workers.run(die)
    assert (await workers.run(about_me, 0))[0]


async def test_closing_ends_idle_and_busy_workers() -> None:
    pool = Workers(2, niceness=0)
    busy = asyncio.create_task(pool.run(time.sleep, 600.0))
    pid, _ = await pool.run(about_me, 0)
    await pool.close()
    with pytest.raises((WorkerLost, asyncio.CancelledError)):
        await busy
    assert not psutil.pid_exists(pid)


async def test_a_warmed_pool_has_a_worker_waiting() -> None:
    pool = Workers(1, niceness=0)
    pool.warm()
    pool.warm()
    assert (await pool.run(about_me, 0))[0]
    assert len(pool._idle) == 1
    await pool.close()
