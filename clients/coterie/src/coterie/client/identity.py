"""Health, owners, devices, keys and the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from coterie.client.rest import VERIFY_SECONDS, RestClient
from coterie.records import (
    ApiKey,
    AuditEntry,
    AuditVerification,
    Device,
    KeyInfo,
    KnownKeys,
    Me,
    Owner,
    Ready,
    RegisteredDevice,
    Token,
    Versions,
)
from coterie.records.reading import plain


class Identity(RestClient):
    """Owners, devices and keys."""

    def health(self) -> Ready:
        """Whether every service answers; raises `Unreachable` when it stays otherwise."""
        return self.ask(Ready, "GET", "/health/ready")

    def versions(self) -> Versions:
        """Version and commit of the gateway and of every service behind it."""
        return self.ask(Versions, "GET", "/v1/versions")

    def me(self) -> Me:
        """Whom the key speaks for."""
        return self.ask(Me, "GET", "/v1/me")

    def create_owner(self, name: str, *, sharing: str = "own", public: bool = False) -> Owner:
        """An owner; the same name gives the owner that exists."""
        body = {"name": name, "sharing": sharing} | ({"public": True} if public else {})
        return self.ask(Owner, "POST", "/v1/owners", json=body, idempotent=True)

    def owners(self) -> Iterator[Owner]:
        """All owners."""
        return self.pages(Owner, "/v1/owners")

    def owner(self, owner_id: str) -> Owner:
        """One owner."""
        return self.ask(Owner, "GET", f"/v1/owners/{owner_id}")

    def update_owner(self, owner_id: str, *, sharing: str) -> Owner:
        """Changes what others may see of an owner's devices' ties: "own", "owners" or "all"."""
        return self.ask(Owner, "PATCH", f"/v1/owners/{owner_id}", json={"sharing": sharing}, idempotent=True)

    def issue_token(self, owner_id: str, *, uses: int = 1, lifetime_seconds: float = 86_400.0) -> Token:
        """An enrolment token for an owner's devices; its secret is shown this once."""
        body = {"uses": uses, "lifetime_seconds": lifetime_seconds}
        return self.ask(Token, "POST", f"/v1/owners/{owner_id}/tokens", json=body)

    def create_key(self, role: str, name: str, *, expires_at: float = 0.0) -> ApiKey:
        """An API key for an admin or a publisher; its secret is shown this once."""
        end = {"expires_at": expires_at} if expires_at else {}
        return self.ask(ApiKey, "POST", "/v1/keys", json={"role": role, "name": name, **end})

    def keys(self) -> Iterator[KeyInfo]:
        """API keys of admins and publishers, without their secrets."""
        return self.pages(KeyInfo, "/v1/keys")

    def rotate_key(self, key_id: str, *, grace_seconds: float = 86_400.0, expires_at: float = 0.0) -> ApiKey:
        """A fresh key for the same holder; the old one goes on for a while."""
        body = {"grace_seconds": grace_seconds, "expires_at": expires_at}
        return self.ask(ApiKey, "POST", f"/v1/keys/{key_id}/rotation", json=body)

    def revoke_key(self, key_id: str) -> None:
        """Ends an API key at once."""
        self.request("DELETE", f"/v1/keys/{key_id}")

    def register_device(self, body: Mapping[str, Any]) -> RegisteredDevice:
        """A device and its API key, by enrolment token; safe to repeat with the same token and signing key."""
        return self.ask(RegisteredDevice, "POST", "/v1/devices", json=dict(body), idempotent=True)

    def devices(self, *, owner: str = "", state: str = "") -> Iterator[Device]:
        """All devices, of one owner or all."""
        return self.pages(Device, "/v1/devices", owner=owner, state=state)

    def device(self, device_id: str) -> Device:
        """One device."""
        return self.ask(Device, "GET", f"/v1/devices/{device_id}")

    def keys_of(self, device_id: str) -> KnownKeys:
        """Any device's public keys, to be compared with its owner."""
        return self.ask(KnownKeys, "GET", f"/v1/devices/{device_id}/keys")

    def update_device(self, device_id: str, **changes: Any) -> Device:
        """Changes a device's location or capabilities; what is left out stays."""
        return self.ask(Device, "PATCH", f"/v1/devices/{device_id}", json=changes, idempotent=True)

    def rotate_keys(self, device_id: str, *, signing_key: bytes, sealing_key: bytes, proof: bytes) -> Device:
        """Gives a device fresh public keys; the proof is both, one after the other, signed with the old signing key."""
        body = plain({"signing_key": signing_key, "sealing_key": sealing_key, "proof": proof})
        return self.ask(Device, "PUT", f"/v1/devices/{device_id}/keys", json=body)

    def revoke_device(self, device_id: str, why: str = "") -> Device:
        """Ends a device's part in everything."""
        path = f"/v1/devices/{device_id}/revocation"
        return self.ask(Device, "POST", path, json={"why": why}, idempotent=True)

    def erase_device(self, device_id: str) -> Device:
        """Revokes a device and forgets its name, profile, keys, ties and letters; its bare id stays in the book."""
        return self.ask(Device, "DELETE", f"/v1/devices/{device_id}", idempotent=True)

    def heartbeat(self, device_id: str) -> None:
        """Says that the device is alive."""
        self.request("POST", f"/v1/devices/{device_id}/heartbeat", idempotent=True)

    def audit(self, *, subject: str = "", act: str = "") -> Iterator[AuditEntry]:
        """The audit log, newest first: by one subject or all, one kind of act or any."""
        return self.pages(AuditEntry, "/v1/audit", subject=subject, act=act)

    def verify_audit(self) -> AuditVerification:
        """Follows the audit log's chain of hashes from the first entry to the last."""
        path = "/v1/audit/verification"
        return self.ask(AuditVerification, "POST", path, idempotent=True, wait_seconds=VERIFY_SECONDS)
