"""The owner's limit, what releases have spent of it, and the errors that refuse more.

LedgerError
├── BudgetExceeded      the release would cross the device's limit; nothing was written
├── ChargeConflict      the same task, round and purpose with another mechanism or amount
├── LedgerUnavailable   the file is locked, missing or read-only
└── LedgerUnreadable    the file is damaged or is not a ledger
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
    """Base of the ledger's errors."""


class ChargeConflict(LedgerError):
    """The release was already charged with another cost."""


class LedgerUnavailable(LedgerError):
    """The file cannot be read or written; nothing was charged."""


class LedgerUnreadable(LedgerError):
    """The file is not a ledger this version can read."""


class BudgetExceeded(LedgerError):
    """The release would cross the device's limit.

    Attributes:
        spent: ε spent and reserved so far.
        asked: ε after the release; infinite if it gives no guarantee for the limit's unit.
        limit: the limit that it would cross.
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
    """The total that the owner allows: ε at δ, for one example or the whole device, left out or replaced.

    The default adjacency is the usual one of the unit: a device left out, an example replaced. `allow_raw` permits
    releases without noise to devices that the owner trusts. They are listed and counted, but ε does not include them.
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
        """The question that its ε answers."""
        return Question.of(self.unit, self.adjacency)


DEFAULT_LIMIT = Limit(epsilon=8.0, delta=1e-5)
BEYOND_LIMIT = "this round would cross the privacy limit of the device's owner"
"""Sent to the platform, so it reveals neither the ε spent nor the limit."""


@dataclass(frozen=True, slots=True)
class Spent:
    """ε spent and reserved at the limit's δ, and the numbers of noised and raw releases."""

    epsilon: float
    delta: float
    question: Question
    releases: int
    raw_releases: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of a charge: the recorded charge, the new total, and whether it had been recorded before."""

    spent: Spent
    repeated: bool
    charge: Charge


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the history; `charged_at` is Unix time in seconds."""

    charge: Charge
    state: State
    charged_at: float


@dataclass(frozen=True, slots=True)
class Running:
    """Running totals: the loss for every question, and the numbers of noised and raw releases."""

    losses: Mapping[Question, Loss]
    releases: int
    raw: int

    @property
    def made(self) -> int:
        """Number of all releases."""
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
    """Raise `BudgetExceeded` for a charge that crosses the limit."""
    if charge.mechanism == "raw":
        if not limit.allow_raw:
            raise BudgetExceeded(charge, before.epsilon, math.inf, limit)
    elif after.epsilon > limit.epsilon:
        raise BudgetExceeded(charge, before.epsilon, after.epsilon, limit)
