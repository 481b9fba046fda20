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
    _wakes: dict[str, int] = field(default_factory=dict)
    _count: int = 0

    async def start(self) -> None:
        """Load the devices that were in committees when the process ended."""
        async with self.database.reading() as tx:
            self.devices |= await sum_sessions.devices_with_members(tx)

    def wake(self, devices: Iterable[str]) -> None:
        """Add these devices and notify their long polls: they may have duties."""
        known = list(devices)
        self._count += 1
        self._wakes |= dict.fromkeys(known, self._count)
        self.devices.update(known)
        self.notifier.notify(*(f"duties:{device}" for device in known))

    def last_wake(self, device: str) -> int:
        """Return the number of a device's last wake-up; read it before the device's memberships."""
        return self._wakes.get(device, 0)

    def remove(self, device: str, after: int) -> None:
        """Remove a device without sessions, unless `wake` named it again after wake-up number `after`."""
        if self.last_wake(device) == after:
            self.devices.discard(device)
            self._wakes.pop(device, None)
