"""Who may have duties: devices with a seat in some sitting, in memory, so that others' long polls cost nothing.

It errs on one side only: a device it names may have nothing to do, one it does not name has no seat this replica knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.aggregation.store import sittings
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier


@dataclass(slots=True)
class Desk:
    """The devices with seats."""

    database: Database
    notifier: Notifier
    devices: set[str] = field(default_factory=set)
    _calls: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    async def start(self) -> None:
        """Reads who had a seat when the process ended."""
        async with self.database.reading() as tx:
            self.devices |= await sittings.devices_with_seats(tx)

    def call(self, devices: Iterable[str]) -> None:
        """These have seats, and perhaps something to do: wakes them."""
        known = list(devices)
        self._count += 1
        self._calls |= dict.fromkeys(known, self._count)
        self.devices.update(known)
        self.notifier.notify(*(f"duties:{device}" for device in known))

    def last_call(self, device: str) -> int:
        """Number of the last call of a device, to be taken before its seats are read."""
        return self._calls.get(device, 0)

    def dismiss(self, device: str, after: int) -> None:
        """It was told to forget all its sittings; unless it was called since, for one that was not among them."""
        if self.last_call(device) == after:
            self.devices.discard(device)
            self._calls.pop(device, None)
