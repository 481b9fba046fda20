"""Waking those who wait: long polls sleep on a key and are rung when something under it changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Notifier:
    """Named bells. Nothing is remembered: ring after the change, and look again after every wake-up."""

    def __init__(self) -> None:
        self._sleepers: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._closed = False

    def notify(self, *keys: str) -> None:
        """Wakes everybody asleep on these keys."""
        for key in keys:
            for sleeper in self._sleepers.pop(key, ()):
                if not sleeper.done():
                    sleeper.set_result(None)

    def notify_all(self) -> None:
        """Wakes everybody to look again: something may have been missed."""
        self.notify(*list(self._sleepers))

    def close(self) -> None:
        """Wakes everybody for good: the process is going to stop."""
        self._closed = True
        self.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether the process is going to stop."""
        return self._closed

    def subscribe(self, *keys: str) -> Subscription:
        """Starts to listen now, so that a ring between looking and sleeping is not missed."""
        return Subscription(self, keys)


class Subscription:
    """One listener; use as a context manager."""

    def __init__(self, notifier: Notifier, keys: tuple[str, ...]) -> None:
        self._notifier, self._keys = notifier, keys
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> Subscription:
        for key in self._keys:
            self._notifier._sleepers[key].add(self._future)
        if self._notifier._closed and not self._future.done():
            self._future.set_result(None)
        return self

    def __exit__(self, *_: object) -> None:
        for key in self._keys:
            sleepers = self._notifier._sleepers.get(key)
            if sleepers is not None:
                sleepers.discard(self._future)
                if not sleepers:
                    del self._notifier._sleepers[key]

    async def wait(self, seconds: float) -> bool:
        """Sleeps until rung or for so long; whether it was rung."""
        done, _ = await asyncio.wait({self._future}, timeout=max(seconds, 0.0))
        return bool(done)
