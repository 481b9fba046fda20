"""The platform's error tree: each error has a kind, a stable reason token and a message.

    CoterieError
    ├── InvalidInput        the request itself is wrong; repeating it cannot help
    │   └── Unprocessable   well formed, but its content is contradictory or unsupported
    ├── Unauthenticated     no valid credentials
    ├── PermissionDenied    the caller may not do this
    ├── NotFound            the named object does not exist
    ├── AlreadyExists       a different object with that name exists
    ├── Conflict            the object exists but is in the wrong state
    ├── TooLarge            a limit on size or number is exceeded
    ├── Exhausted           a budget, an escrow or a quota is spent
    └── Unavailable         try again later; nothing was changed

A service's own errors subclass one kind. The reason is the class name in snake case, stable across releases:
`class UnknownDevice(NotFound)` travels as `unknown_device`. Messages are for people and say what to do next.
"""

from __future__ import annotations

import re

_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class CoterieError(Exception):
    """Root of every error that callers receive."""

    reason: str = "coterie_error"

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.reason = _HUMP.sub("_", cls.__name__).lower()

    def __init__(self, message: str, *, details: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}


class InvalidInput(CoterieError, ValueError):
    """The request itself is wrong."""


class Unprocessable(InvalidInput):
    """The request is well formed, but its content is contradictory or unsupported."""


class Unauthenticated(CoterieError):
    """The request has no valid credentials."""


class PermissionDenied(CoterieError):
    """The caller is known and may not do this."""


class NotFound(CoterieError):
    """The named object does not exist."""


class AlreadyExists(CoterieError):
    """A different object with that name exists."""


class Conflict(CoterieError):
    """The object exists, but its state does not allow this."""


class TooLarge(CoterieError):
    """A limit on size or number is exceeded."""


class Exhausted(CoterieError):
    """A budget, an escrow or a quota is spent."""


class Unavailable(CoterieError):
    """A dependency is unavailable; the same call may succeed later."""
