"""Access to money: admins and the platform see and move all of it, publishers and devices their own."""

from __future__ import annotations

from services.kit.rpc.principal import SERVICE, NotAllowed, Principal, current_principal, require_role


def require_platform() -> Principal:
    """Return the caller if it is the platform or an admin."""
    return require_role("admin")


def require_publisher(publisher: str) -> Principal:
    """Return the caller if it is that publisher, an admin or the platform."""
    caller = require_role("publisher", "admin")
    if caller.role == "publisher" and caller.subject != publisher:
        raise NotAllowed(f"publisher {caller.subject} may not act for {publisher[:40]}; use that publisher's own key")
    return caller


def sees_all() -> bool:
    """Whether the caller sees all accounts and payments."""
    return current_principal().role in ("admin", SERVICE.role)


def is_own(account_id: str) -> bool:
    """Whether the account belongs to the caller or to the caller's owner."""
    caller = current_principal()
    if caller.role == "publisher":
        return account_id == f"publisher:{caller.subject}"
    if caller.role == "device":
        return account_id in (f"device:{caller.subject}", f"owner:{caller.owner_id}")
    return False
