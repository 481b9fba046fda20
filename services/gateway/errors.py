"""Errors that the gateway itself raises; all others come from the services."""

from __future__ import annotations

from services.kit.errors import InvalidInput, NotFound, PermissionDenied, TooLarge, Unauthenticated, Unavailable


class MissingKey(Unauthenticated):
    """The request came without an API key."""


class TooManyWrongKeys(Unavailable):
    """Too many unknown keys came from the caller's address."""


class RoleNotAllowed(PermissionDenied):
    """The route is closed to the caller's role."""


class NotYours(PermissionDenied):
    """The caller asked for an object of another owner or publisher."""


class NotLinked(PermissionDenied):
    """Only a browser linked on the device may decide."""


class BodyTooLarge(TooLarge):
    """The body exceeds the route's limit."""


class BodyCutShort(InvalidInput):
    """The connection closed before the body was complete."""


class BadHeader(InvalidInput):
    """A required header is missing or malformed."""


class BadText(InvalidInput):
    """Text holds a character that cannot be stored."""


class UnknownPublisher(NotFound):
    """No publisher or admin has that subject."""


class UnknownCell(NotFound):
    """No base station has that id."""


class Stopping(Unavailable):
    """The gateway is shutting down."""


class BadShareSize(InvalidInput):
    """The size of a share sum differs from its terms."""
