"""The principal and request id of the current request, in context variables across REST, gRPC and logs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from services.kit.errors import PermissionDenied

_VALID_REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


@dataclass(frozen=True, slots=True)
class Principal:
    """A role ("admin", "publisher", "device", "station", "service" or "anonymous") and the subject that has it."""

    role: str
    subject: str
    owner_id: str = ""


SERVICE = Principal("service", "platform")
"""A service that calls another for itself."""

ANONYMOUS = Principal("anonymous", "")
"""A caller without a key, who may register or sign in."""

STATION = Principal("station", "")
"""A base station in a separate process; its token identifies it."""

ROLES = frozenset({"admin", "publisher", "device", SERVICE.role, STATION.role, ANONYMOUS.role})

_principal: ContextVar[Principal] = ContextVar("principal", default=SERVICE)
_request_id: ContextVar[str] = ContextVar("request_id", default="")


class NotAllowed(PermissionDenied):
    """The principal's role or identity does not allow this."""


def current_principal() -> Principal:
    """Return the principal of the current request."""
    return _principal.get()


def set_principal(principal: Principal) -> None:
    """Set the principal of this asyncio task."""
    _principal.set(principal)


@contextmanager
def acting_as(principal: Principal) -> Iterator[None]:
    """Set the principal within the block, for example to complete an authorised action as the platform."""
    token = _principal.set(principal)
    try:
        yield
    finally:
        _principal.reset(token)


def current_request_id() -> str:
    """Return the id of the current request; empty outside one."""
    return _request_id.get()


def set_request_id(request_id: str) -> str:
    """Set the request id: the given one if it is valid, else a new one; return it."""
    adopted = request_id if _VALID_REQUEST_ID.match(request_id) else secrets.token_hex(8)
    _request_id.set(adopted)
    return adopted


def require_role(*roles: str) -> Principal:
    """Return the principal if it has one of these roles or is a service; raise `NotAllowed` otherwise."""
    principal = current_principal()
    if principal.role != SERVICE.role and principal.role not in roles:
        raise NotAllowed(f"this needs the role {' or '.join(roles)}; the key used is a {principal.role}'s")
    return principal


def require_device(device_id: str) -> Principal:
    """Return the principal if it is this device, an admin or a service; raise `NotAllowed` otherwise."""
    principal = require_role("device", "admin")
    if principal.role == "device" and principal.subject != device_id:
        raise NotAllowed(f"device {principal.subject} may not act for {device_id}; use that device's own key")
    return principal
