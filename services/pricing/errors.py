"""What the pricing engine refuses, each one of the kit's kinds."""

from __future__ import annotations

from services.kit.errors import AlreadyExists, Conflict, Exhausted, InvalidInput, NotFound


class BadAmount(InvalidInput):
    """Not an amount of micro-credits that can be moved."""


class BadName(InvalidInput):
    """Not a name that an account, a task or a key can have."""


class BadRound(InvalidInput):
    """Rounds count from 1, and every device is in a round once."""


class BadPeriod(InvalidInput):
    """A period ends before it begins, or a δ is no probability."""


class UnknownAccount(NotFound):
    """No account has that id."""


class UnknownQuote(NotFound):
    """That round has not been priced."""


class UnknownEscrow(NotFound):
    """No escrow was opened for that task."""


class DepositDiffers(AlreadyExists):
    """A deposit with that key exists and is another one."""


class EscrowDiffers(AlreadyExists):
    """The task's escrow exists with another amount or publisher."""


class SettlementDiffers(AlreadyExists):
    """The round was settled for other work."""


class QuoteDiffers(AlreadyExists):
    """The round was priced under another incentive."""


class EscrowReleased(Conflict):
    """The task's escrow went back to its publisher."""


class InsufficientFunds(Exhausted):
    """The publisher's account does not hold what the escrow needs."""
