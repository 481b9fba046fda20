"""The platform's error tree: each error has a kind, a stable reason token and a message.

    CoterieError
    ├── InvalidInput        the request itself is wrong; repeating it cannot help
    │   └── Unprocessable   well formed, but the content cannot be true or cannot be served
    ├── Unauthenticated     no valid credentials
    ├── PermissionDenied    the caller may not do this
    ├── NotFound            the thing named does not exist
    ├── AlreadyExists       a different thing with that name exists
    ├── Conflict            the thing exists but is in the wrong state
    ├── TooLarge            a limit on size or number was passed
    ├── Exhausted           a budget, an escrow or a quota is spent
    └── Unavailable         try again later; nothing was changed

A service's own errors subclass one kind. The reason is the class name in snake case, stable across releases:
`class UnknownDevice(NotFound)` travels as `unknown_device`. Messages are for people and say what to do next.
"""

from __future__ import annotations

import re

_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class CoterieError(Exception):
    """Root of every error a caller may see."""

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
    """The request is well formed, but what it holds cannot be true or cannot be served."""


class Unauthenticated(CoterieError):
    """No valid credentials came with the request."""


class PermissionDenied(CoterieError):
    """The caller is known and may not do this."""


class NotFound(CoterieError):
    """The thing named does not exist."""


class AlreadyExists(CoterieError):
    """A different thing with that name exists."""


class Conflict(CoterieError):
    """The thing exists but its state does not allow this."""


class TooLarge(CoterieError):
    """A limit on size or number was passed."""


class Exhausted(CoterieError):
    """A budget, an escrow or a quota is spent."""


class Unavailable(CoterieError):
    """Something needed is away; the same call may succeed later."""
