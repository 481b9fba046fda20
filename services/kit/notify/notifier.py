"""Wake long polls: they subscribe to keys and are notified of changes."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class Notifier:
    """Notifications by key. Edge-triggered: commit first, then notify; re-check state after waking."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._closed = False

    def notify(self, *keys: str) -> None:
        """Wake every subscription to these keys."""
        for key in keys:
            for future in self._waiting.pop(key, ()):
                if not future.done():
                    future.set_result(None)

    def notify_all(self) -> None:
        """Wake every subscription, because notifications may have been missed."""
        self.notify(*list(self._waiting))

    def close(self) -> None:
        """Wake every subscription, now and later: the process is stopping."""
        self._closed = True
        self.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether the process is stopping."""
        return self._closed

    def subscribe(self, *keys: str) -> Subscription:
        """Subscribe before checking the state, so that no notification between check and wait is missed."""
        return Subscription(self, keys)


class Subscription:
    """A subscription to keys; use as a context manager."""

    def __init__(self, notifier: Notifier, keys: tuple[str, ...]) -> None:
        self._notifier, self._keys = notifier, keys
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> Subscription:
        for key in self._keys:
            self._notifier._waiting[key].add(self._future)
        if self._notifier._closed and not self._future.done():
            self._future.set_result(None)
        return self

    def __exit__(self, *_: object) -> None:
        for key in self._keys:
            waiting = self._notifier._waiting.get(key)
            if waiting is not None:
                waiting.discard(self._future)
                if not waiting:
                    del self._notifier._waiting[key]

    async def wait(self, seconds: float) -> bool:
        """Wait for a notification, at most `seconds`; return whether one arrived."""
        done, _ = await asyncio.wait({self._future}, timeout=max(seconds, 0.0))
        return bool(done)
