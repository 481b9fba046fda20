"""Who may have duties: devices with a seat in some sitting, in memory, so that others' long polls cost nothing.

It errs on one side only: a device it names may have nothing to do, one it does not name has no seat this replica knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from services.aggregation.store import sittings
from services.kit.bell import Bell
from services.kit.database import Database


@dataclass(slots=True)
class Desk:
    """The devices with seats."""

    database: Database
    bell: Bell
    devices: set[str] = field(default_factory=set)

    async def start(self) -> None:
        """Reads who had a seat when the process ended."""
        async with self.database.reading() as tx:
            self.devices |= await sittings.devices_with_seats(tx)

    def call(self, devices: Iterable[str]) -> None:
        """These have seats, and perhaps something to do: wakes them."""
        known = list(devices)
        self.devices.update(known)
        self.bell.ring(*(f"duties:{device}" for device in known))

    def dismiss(self, device: str) -> None:
        """It was told to forget all its sittings."""
        self.devices.discard(device)
