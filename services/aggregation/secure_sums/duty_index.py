"""An in-memory index of devices that may have duties, so that long polls of other devices cost no query.

A device in the index may have nothing to do. A device outside it is in no committee that this replica knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.aggregation.store import sum_sessions
from services.kit.database.engine import Database
from services.kit.notify.notifier import Notifier


@dataclass(slots=True)
class DutyIndex:
    """Devices in committees."""

    database: Database
    notifier: Notifier
    devices: set[str] = field(default_factory=set)
    _calls: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    async def start(self) -> None:
        """Reads who had a member when the process ended."""
        async with self.database.reading() as tx:
            self.devices |= await sum_sessions.devices_with_members(tx)

    def call(self, devices: Iterable[str]) -> None:
        """These have members, and perhaps something to do: wakes them."""
        known = list(devices)
        self._count += 1
        self._calls |= dict.fromkeys(known, self._count)
        self.devices.update(known)
        self.notifier.notify(*(f"duties:{device}" for device in known))

    def last_call(self, device: str) -> int:
        """Number of the last call of a device, to be taken before its members are read."""
        return self._calls.get(device, 0)

    def dismiss(self, device: str, after: int) -> None:
        """It was told to forget all its sum_sessions; unless it was called since, for one that was not among them."""
        if self.last_call(device) == after:
            self.devices.discard(device)
            self._calls.pop(device, None)
