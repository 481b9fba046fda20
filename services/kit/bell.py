"""Waking those who wait: long polls sleep on a key and are rung when something under it changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Bell:
    """Named bells. Nothing is remembered: ring after the change, and look again after every wake-up."""

    def __init__(self) -> None:
        self._sleepers: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._closed = False

    def ring(self, *keys: str) -> None:
        """Wakes everybody asleep on these keys."""
        for key in keys:
            for sleeper in self._sleepers.pop(key, ()):
                if not sleeper.done():
                    sleeper.set_result(None)

    def wake(self) -> None:
        """Wakes everybody to look again: something may have been missed."""
        self.ring(*list(self._sleepers))

    def ring_all(self) -> None:
        """Wakes everybody for good: the process is going to stop."""
        self._closed = True
        self.wake()

    @property
    def is_closed(self) -> bool:
        """Whether the process is going to stop."""
        return self._closed

    def listen(self, *keys: str) -> Sleeper:
        """Starts to listen now, so that a ring between looking and sleeping is not missed."""
        return Sleeper(self, keys)


class Sleeper:
    """One listener; use as a context manager."""

    def __init__(self, bell: Bell, keys: tuple[str, ...]) -> None:
        self._bell, self._keys = bell, keys
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> Sleeper:
        for key in self._keys:
            self._bell._sleepers[key].add(self._future)
        if self._bell._closed and not self._future.done():
            self._future.set_result(None)
        return self

    def __exit__(self, *_: object) -> None:
        for key in self._keys:
            sleepers = self._bell._sleepers.get(key)
            if sleepers is not None:
                sleepers.discard(self._future)
                if not sleepers:
                    del self._bell._sleepers[key]

    async def wait(self, seconds: float) -> bool:
        """Sleeps until rung or for so long; whether it was rung."""
        done, _ = await asyncio.wait({self._future}, timeout=max(seconds, 0.0))
        return bool(done)
