"""Numbers and owners of devices by id: facts that never change, cached once read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from services.kit.database.rows import Tx
from services.trust.domain import checks
from services.trust.errors import UnknownDevice
from services.trust.store import devices
from services.trust.usecases.devices import unknown_devices


@dataclass(frozen=True, slots=True)
class Entry:
    """A device: its number (the index in the trust graph), its id and its owner's number."""

    number: int
    id: str
    owner_number: int


class Directory:
    """Devices by id and by number; unknown ones are read in the caller's transaction."""

    def __init__(self) -> None:
        self._by_id: dict[str, Entry] = {}
        self._by_number: dict[int, Entry] = {}

    async def find(self, tx: Tx, device_ids: Iterable[str]) -> dict[str, Entry]:
        """Return the devices among `device_ids` that exist."""
        wanted = set(device_ids)
        missing = [item for item in wanted if item not in self._by_id and checks.is_id("dev", item)]
        if missing:
            self._keep(await devices.entries_by_id(tx, missing))
        return {item: self._by_id[item] for item in wanted if item in self._by_id}

    async def require(self, tx: Tx, *device_ids: str) -> list[Entry]:
        """Return the devices in the requested order; raise for an unknown one."""
        result = await self.find(tx, device_ids)
        unknown = [item for item in device_ids if item not in result]
        if unknown:
            raise unknown_devices(unknown)
        return [result[item] for item in device_ids]

    async def named(self, tx: Tx, numbers: Iterable[int]) -> dict[int, Entry]:
        """Return the devices with these numbers."""
        wanted = set(numbers)
        missing = [number for number in wanted if number not in self._by_number]
        if missing:
            self._keep(await devices.entries_by_number(tx, missing))
        lost = wanted - self._by_number.keys()
        if lost:
            raise UnknownDevice(f"no device has the number {min(lost)}; the tables are inconsistent")
        return {number: self._by_number[number] for number in wanted}

    def _keep(self, rows: Iterable[tuple[int, str, int]]) -> None:
        for row in rows:
            entry = Entry(*row)
            self._by_id[entry.id] = self._by_number[entry.number] = entry
