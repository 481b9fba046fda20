"""What the gateway itself refuses; everything else is a service's word, passed on."""

from __future__ import annotations

from services.kit.errors import InvalidInput, NotFound, PermissionDenied, TooLarge, Unauthenticated, Unavailable


class MissingKey(Unauthenticated):
    """The request came without an API key."""


class TooManyWrongKeys(Unavailable):
    """Too many keys that nobody has came from the caller's address."""


class RoleNotAllowed(PermissionDenied):
    """The route is closed to the caller's role."""


class NotYours(PermissionDenied):
    """The caller asked for something that is somebody else's."""


class NotLinked(PermissionDenied):
    """Only a browser that was linked on the device decides."""


class BodyTooLarge(TooLarge):
    """The body passes the route's limit."""


class BodyCutShort(InvalidInput):
    """The connection ended before the body did."""


class BadHeader(InvalidInput):
    """A header the route needs is missing or malformed."""


class BadText(InvalidInput):
    """Text holds a character that cannot be stored."""


class UnknownPublisher(NotFound):
    """No publisher or admin has that subject."""


class UnknownCell(NotFound):
    """No base station has that id."""


class Stopping(Unavailable):
    """This gateway is shutting down; another, or its successor, will answer."""


class BadShareSize(InvalidInput):
    """A share sum has another size than its terms ask for."""
