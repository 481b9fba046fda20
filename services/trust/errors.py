"""What can go wrong in the trust registry, each one of the kit's kinds."""

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
    """A key cannot end before it begins."""


class NameTaken(AlreadyExists):
    """Another thing of the same kind has that name."""


class SigningKeyTaken(AlreadyExists):
    """Another device uses that signing key."""


class InvalidProof(InvalidInput):
    """A signature that does not prove possession of the key it speaks of."""


class InvalidToken(Unauthenticated):
    """An enrolment token that is unknown or expired."""


class TokenSpent(Exhausted):
    """An enrolment token whose uses are all gone."""


class DeviceRevoked(Conflict):
    """The device was revoked and takes part in nothing any more."""


class KeysChanged(Conflict):
    """The device's keys changed meanwhile, or differ from the ones it registered with."""


class UnknownLink(NotFound):
    """No such link, or none of that device."""


class LinkOver(Conflict):
    """The link was taken by another browser, or its time is over."""


class BadSignature(Unauthenticated):
    """Not signed by the browser of that link, or signed before."""


class UnknownDecision(NotFound):
    """No decision of that device has that id."""


class TooManyDecisions(Exhausted):
    """The device has not answered those before."""


class LastAdminKey(Conflict):
    """Revoking this key would leave nobody in charge."""


class InvalidApiKey(Unauthenticated):
    """An API key that is malformed, unknown or revoked."""


class InvalidAdminKeyFile(InvalidInput):
    """The admin key file does not hold an API key."""


class TooMany(TooLarge):
    """More things in one request than are taken."""


class InvalidInteractions(InvalidInput):
    """Some interactions of a batch are bad; nothing was recorded."""


class ForeignInteractions(PermissionDenied):
    """A device reported what it was not part of, or in another's name; nothing was recorded."""


class SelfTrust(InvalidInput):
    """Trust between a device and itself is not a question."""


class HiddenTie(PermissionDenied):
    """The tie is neither the caller's own nor shared by its owners."""


class UnknownImport(NotFound):
    """No import has that name."""


class BadImport(InvalidInput):
    """A row of an import cannot be taken; the rows before it are stored."""
