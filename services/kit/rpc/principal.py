"""Who is asking, and under which request id: carried through REST, gRPC and logs without being passed along."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from services.kit.errors import PermissionDenied

_SOUND_REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")


@dataclass(frozen=True, slots=True)
class Principal:
    """A role ("admin", "publisher", "device", "station" or "service") and whom it speaks for."""

    role: str
    subject: str
    owner_id: str = ""


SERVICE = Principal("service", "platform")
"""The platform itself: a service calling another on nobody's behalf."""

ANONYMOUS = Principal("anonymous", "")
"""Somebody outside who has no key yet and asks for one."""

STATION = Principal("station", "")
"""A base station that is a process of its own; which one, its token says."""

ROLES = frozenset({"admin", "publisher", "device", SERVICE.role, STATION.role, ANONYMOUS.role})

_caller: ContextVar[Principal] = ContextVar("caller", default=SERVICE)
_request_id: ContextVar[str] = ContextVar("request_id", default="")


class NotAllowed(PermissionDenied):
    """The caller's role, or identity, does not allow this."""


def current_principal() -> Principal:
    """Who the present request speaks for."""
    return _caller.get()


def set_principal(caller: Principal) -> None:
    """From here on, in this task, requests speak for `caller`."""
    _caller.set(caller)


@contextmanager
def acting_as(caller: Principal) -> Iterator[None]:
    """Within the block, requests speak for `caller`: the platform completes what somebody was allowed to begin."""
    token = _caller.set(caller)
    try:
        yield
    finally:
        _caller.reset(token)


def current_request_id() -> str:
    """Id of the present request; empty outside one."""
    return _request_id.get()


def set_request_id(request_id: str) -> str:
    """Adopts a sound request id from outside, or makes one; returns it."""
    sound = request_id if _SOUND_REQUEST_ID.match(request_id) else secrets.token_hex(8)
    _request_id.set(sound)
    return sound


def require_role(*roles: str) -> Principal:
    """The caller, if it has one of these roles; the platform itself always passes."""
    caller = current_principal()
    if caller.role != SERVICE.role and caller.role not in roles:
        raise NotAllowed(f"this needs the role {' or '.join(roles)}; the key used is a {caller.role}'s")
    return caller


def require_device(device_id: str) -> Principal:
    """The caller, if it is that very device, an admin or the platform."""
    caller = require_role("device", "admin")
    if caller.role == "device" and caller.subject != device_id:
        raise NotAllowed(f"device {caller.subject} may not act for {device_id}; use that device's own key")
    return caller
