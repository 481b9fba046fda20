"""Names behind ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from services.console.domain.words import short

Json = dict[str, Any]
ONLINE_SECONDS = 120.0
"""A device heard of within this time counts as online; agents beat every few seconds."""


@dataclass(frozen=True, slots=True)
class Names:
    """Devices and owners by id, as they were at `at`."""

    devices: dict[str, Json] = field(default_factory=dict)
    owners: dict[str, Json] = field(default_factory=dict)
    at: float = 0.0

    def device(self, device_id: str) -> str:
        """A device's name, or the end of its id when the reader may not know its name."""
        result = self.devices.get(device_id)
        return str(result["name"]) if result else short(device_id)

    def owner(self, owner_id: str) -> str:
        """An owner's name, or its id."""
        result = self.owners.get(owner_id)
        return str(result["name"]) if result else owner_id

    def account(self, account_id: str) -> str:
        """Whose an account is."""
        kind, _, rest = account_id.partition(":")
        if kind == "device":
            return f"device {self.device(rest)}"
        return f"owner {self.owner(rest)}" if kind == "owner" else f"{kind} {rest}"

    def online(self, now: float) -> int:
        """How many active devices were heard of just now."""
        return sum(
            1
            for device in self.devices.values()
            if device["state"] == "active" and now - device["last_seen_at"] < ONLINE_SECONDS
        )

    def active(self) -> int:
        """How many devices are not revoked."""
        return sum(1 for device in self.devices.values() if device["state"] == "active")
