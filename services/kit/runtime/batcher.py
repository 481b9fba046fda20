"""Lookups that come at once are read at once: a thousand devices that present their keys cost a few reads.

Nothing is remembered. Whoever asks while a read is under way waits for the next one, so an answer is never older than
its question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

MOST_AT_ONCE = 200
T = TypeVar("T")


class Together(Generic[T]):
    """Finds things by id, several per read; `read` is given distinct ids and returns those there are."""

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]) -> None:
        self._read = read
        self._waiting: list[tuple[str, asyncio.Future[T | None]]] = []
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key: str) -> T | None:
        """What has that id, or None."""
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((key, future))
        if self._reading is None:
            self._reading = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                await self._answer(batch)
        finally:
            self._reading = None

    async def _answer(self, batch: Sequence[tuple[str, asyncio.Future[T | None]]]) -> None:
        try:
            found = await self._read(list({key for key, _ in batch}))
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for key, future in batch:
            if not future.done():  # its caller may have gone
                future.set_result(found.get(key))
