"""What an owner allows a device to give away, what is spent of it, and what is refused.

LedgerError
├── BudgetExceeded      the release would cross the device's limit; nothing was written
├── ChargeConflict      the same task, round and purpose with another mechanism or amount
├── LedgerUnavailable   the file is locked, missing or cannot be written just now
└── LedgerUnreadable    the file is damaged or is no ledger
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from coterie.privacy.accounting import NOTHING, QUESTIONS, Adjacency, Charge, Loss, Question, Unit
from coterie.privacy.preconditions import check_delta, check_positive

State: TypeAlias = Literal["reserved", "spent"]


class LedgerError(Exception):
    """Anything the ledger refuses."""


class ChargeConflict(LedgerError):
    """A release was already charged differently."""


class LedgerUnavailable(LedgerError):
    """The file cannot be read or written at the moment; nothing was charged."""


class LedgerUnreadable(LedgerError):
    """The file is not a ledger this version can read."""


class BudgetExceeded(LedgerError):
    """A release that would take the device beyond its own limit.

    Attributes:
        spent: ε spent and reserved so far.
        asked: ε there would be after the release; infinite when it gives no guarantee of the limit's unit.
        limit: the limit it would cross.
    """

    def __init__(self, charge: Charge, spent: float, asked: float, limit: Limit) -> None:
        self.charge, self.spent, self.asked, self.limit = charge, spent, asked, limit
        super().__init__(
            f"{charge.purpose} of task {charge.task} round {charge.round} would take this device from ε = {spent:.4g} "
            f"to ε = {asked:.4g}, beyond its limit of {limit.epsilon:.4g} ({limit.question}, δ = {limit.delta:g}); "
            "leave the task, ask for more noise, or raise the limit"
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """What the owner allows in total: ε at δ, for one example or the whole device, left out or replaced.

    Without an adjacency it is the usual one of the unit: a device left out, an example replaced. `allow_raw` permits
    releases without noise to devices the owner trusts. They are listed and counted but are no part of ε, which cannot
    describe them.
    """

    epsilon: float
    delta: float
    unit: Unit = "example"
    allow_raw: bool = False
    adjacency: Adjacency | None = None

    def __post_init__(self) -> None:
        check_positive("epsilon limit", self.epsilon)
        check_delta(self.delta)

    @property
    def question(self) -> Question:
        """What its ε is about."""
        return Question.of(self.unit, self.adjacency)


DEFAULT_LIMIT = Limit(epsilon=8.0, delta=1e-5)
BEYOND_LIMIT = "this round would cross the privacy limit of the device's owner"
"""Told to the platform, so it holds no figure: what a device has spent, and may spend, is its owner's business."""


@dataclass(frozen=True, slots=True)
class Spent:
    """ε spent and reserved at the limit's δ, for what the limit is about; how many releases, and how many more raw."""

    epsilon: float
    delta: float
    question: Question
    releases: int
    raw_releases: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a charge left behind: as it stands in the ledger; `repeated` when it stood there before."""

    spent: Spent
    repeated: bool
    charge: Charge


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history; `charged_at` is in seconds since 1970."""

    charge: Charge
    state: State
    charged_at: float


@dataclass(frozen=True, slots=True)
class Running:
    """Everything charged so far: its loss for every question, how many releases it was, and how many raw ones."""

    losses: Mapping[Question, Loss]
    releases: int
    raw: int

    @property
    def made(self) -> int:
        """All of them."""
        return self.releases + self.raw

    def plus(self, charge: Charge) -> Running:
        if charge.mechanism == "raw":
            return dataclasses.replace(self, raw=self.raw + 1)
        losses = {question: loss.plus(question.loss(charge)) for question, loss in self.losses.items()}
        return Running(losses, self.releases + 1, self.raw)

    def spent(self, limit: Limit) -> Spent:
        epsilon = self.losses[limit.question].epsilon(limit.delta)
        return Spent(epsilon, limit.delta, limit.question, self.releases, self.raw)


EMPTY = Running(dict.fromkeys(QUESTIONS, NOTHING), 0, 0)


def refuse(charge: Charge, before: Spent, after: Spent, limit: Limit) -> None:
    """Raises `BudgetExceeded` for a charge that leads beyond the limit."""
    if charge.mechanism == "raw":
        if not limit.allow_raw:
            raise BudgetExceeded(charge, before.epsilon, math.inf, limit)
    elif after.epsilon > limit.epsilon:
        raise BudgetExceeded(charge, before.epsilon, after.epsilon, limit)
