"""Coalesce concurrent calls into batches: under load, a thousand calls cost a few transactions, files or RPCs.

A running batch blocks the next one. Items that arrive meanwhile form the next batch, so batches grow with the load and
a single call on an idle process starts at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Runs `run` on at most `size` items at a time, in the order of `add`, one batch after the other.

    `run` returns one result per item, in order. An exception among the results is raised for its own caller; an
    exception that `run` raises is raised for every caller of the batch. A caller that is cancelled before its batch
    starts is left out of it; later its result is dropped. Batches run in an empty context: they act for the platform,
    not for a caller.

    pause_seconds: minimum time between the starts of two batches; a full batch starts without it.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        size: int,
        pause_seconds: float = 0.0,
    ) -> None:
        self._run, self._size, self._pause_seconds = run, size, pause_seconds
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._started_at = -pause_seconds

    def add(self, item: Item) -> asyncio.Future[Result]:
        """Add an item; return a future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if self._worker is None:
            self._worker = loop.create_task(self._work(), context=Context())
        return future

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._pause()
                some = [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]
                batch = [(item, future) for item, future in some if not future.done()]
                if batch:
                    await self._settle(batch)
        except BaseException:
            while self._waiting:
                self._waiting.popleft()[1].cancel()
            raise
        finally:
            self._worker = None

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._started_at + self._pause_seconds - loop.time()
        if left > 0.0 and len(self._waiting) < self._size:
            await asyncio.sleep(left)
        self._started_at = loop.time()

    async def _settle(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._run([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch)
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
