"""Errors of the pricing engine, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import AlreadyExists, Conflict, Exhausted, InvalidInput, NotFound


class BadAmount(InvalidInput):
    """An amount of micro-credits out of range."""


class BadName(InvalidInput):
    """An account, task or key with an invalid name."""


class BadRound(InvalidInput):
    """A round below 1, or a device that occurs twice in a round."""


class BadPeriod(InvalidInput):
    """A period that ends before it begins, or a δ outside (0, 1)."""


class UnknownAccount(NotFound):
    """No account has that id."""


class UnknownQuote(NotFound):
    """That round has not been priced."""


class UnknownEscrow(NotFound):
    """No escrow was opened for that task."""


class DepositDiffers(AlreadyExists):
    """The key belongs to a deposit of another amount."""


class EscrowDiffers(AlreadyExists):
    """The task's escrow exists with another amount or publisher."""


class SettlementDiffers(AlreadyExists):
    """The round was settled for different work."""


class QuoteDiffers(AlreadyExists):
    """The round was priced under another incentive."""


class EscrowReleased(Conflict):
    """The task's escrow was released to its publisher."""


class InsufficientFunds(Exhausted):
    """The publisher's account holds less than the escrow needs."""
