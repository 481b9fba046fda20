"""Names of devices and owners by id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from services.console.domain.words import short

Json = dict[str, Any]
ONLINE_SECONDS = 120.0
"""A device that sent a heartbeat within this time counts as online; agents send one every few seconds."""


@dataclass(frozen=True, slots=True)
class Names:
    """Devices and owners by id, as of `at`."""

    devices: dict[str, Json] = field(default_factory=dict)
    owners: dict[str, Json] = field(default_factory=dict)
    at: float = 0.0

    def device(self, device_id: str) -> str:
        """Return a device's name, or the end of its id if the user may not see the name."""
        result = self.devices.get(device_id)
        return str(result["name"]) if result else short(device_id)

    def owner(self, owner_id: str) -> str:
        """Return an owner's name, or its id."""
        result = self.owners.get(owner_id)
        return str(result["name"]) if result else owner_id

    def account(self, account_id: str) -> str:
        """Return the holder of an account."""
        kind, _, rest = account_id.partition(":")
        if kind == "device":
            return f"device {self.device(rest)}"
        return f"owner {self.owner(rest)}" if kind == "owner" else f"{kind} {rest}"

    def online(self, now: float) -> int:
        """Return the number of active devices that are online."""
        return sum(
            1
            for device in self.devices.values()
            if device["state"] == "active" and now - device["last_seen_at"] < ONLINE_SECONDS
        )

    def active(self) -> int:
        """Return the number of active devices."""
        return sum(1 for device in self.devices.values() if device["state"] == "active")
