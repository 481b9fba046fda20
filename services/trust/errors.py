"""Errors of the trust registry, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import (
    AlreadyExists,
    Conflict,
    Exhausted,
    InvalidInput,
    NotFound,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
)


class InvalidField(InvalidInput):
    """A field is missing, too long, not finite or out of range."""


class UnknownOwner(NotFound):
    """No owner has that id."""


class UnknownDevice(NotFound):
    """No device has that id."""


class UnknownKey(NotFound):
    """No API key has that id."""


class PastEnd(InvalidInput):
    """A key's end lies in the past."""


class NameTaken(AlreadyExists):
    """The name belongs to another object of the same kind."""


class SigningKeyTaken(AlreadyExists):
    """Another device uses that signing key."""


class InvalidProof(InvalidInput):
    """A signature that does not prove possession of its key."""


class InvalidToken(Unauthenticated):
    """An enrolment token that is unknown or expired."""


class TokenSpent(Exhausted):
    """An enrolment token without uses left."""


class DeviceRevoked(Conflict):
    """The device was revoked and no longer takes part."""


class KeysChanged(Conflict):
    """The device's keys changed meanwhile, or differ from the ones it registered with."""


class UnknownLink(NotFound):
    """The link does not exist, or belongs to another device."""


class LinkOver(Conflict):
    """Another browser took the link, or its time is over."""


class BadSignature(Unauthenticated):
    """Not signed by the browser of that link, or a replay."""


class UnknownDecision(NotFound):
    """No decision of that device has that id."""


class TooManyDecisions(Exhausted):
    """Too many decisions wait for the device."""


class LastAdminKey(Conflict):
    """Revoking this key would leave no admin."""


class InvalidApiKey(Unauthenticated):
    """An API key that is malformed, unknown or revoked."""


class InvalidAdminKeyFile(InvalidInput):
    """The admin key file does not hold an API key."""


class TooMany(TooLarge):
    """More items in one request than allowed."""


class InvalidInteractions(InvalidInput):
    """Some interactions of a batch are bad; nothing was recorded."""


class ForeignInteractions(PermissionDenied):
    """A device reported an interaction of others, or in another's name; nothing was recorded."""


class SelfTrust(InvalidInput):
    """A question about trust between a device and itself."""


class HiddenTie(PermissionDenied):
    """The tie is neither the caller's nor shared by its owners."""


class UnknownImport(NotFound):
    """No import has that name."""


class BadImport(InvalidInput):
    """A bad row in an import; the rows before it are stored."""
