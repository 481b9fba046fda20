"""The nouns of the pricing engine; those of the ledger (`Posting`, `Entry`, `Payment`) are in `ledger`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coterie.privacy.accounting import Answer
from coterie.records.enums import PostingKind, QuoteStatus
from services.pricing.domain.ledger import Payment


@dataclass(frozen=True, slots=True)
class Terms:
    """What a device needs to decide on an offer when its privacy depends on that of others; see the proto."""

    others_variance: float
    variance_low: float
    variance_high: float
    trust: tuple[float, ...]
    hidden: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What one device is offered; the proto explains each number."""

    device_id: str
    price_microcredits: int = 0
    external_risk: float = 0.0
    base_microcredits: int = 0
    slope_microcredits: int = 0
    expected: float = 0.0
    most_microcredits: int = 0
    terms: Terms | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """Prices of a round; `pot_microcredits` is divided by quality, in addition to the offers."""

    task_id: str
    round: int
    incentive: str
    status: QuoteStatus
    offers: tuple[Offer, ...]
    pot_microcredits: int = 0
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundBudget:
    """What a round may spend: the task's escrow, and how many rounds it must last for, this one included."""

    escrow_microcredits: int
    rounds_left: int

    @property
    def share_microcredits(self) -> int:
        """The round's even share of the escrow."""
        return self.escrow_microcredits // max(1, self.rounds_left)


@dataclass(frozen=True, slots=True)
class Account:
    """An account and its balance."""

    id: str
    balance_microcredits: int
    opened_at: float


@dataclass(frozen=True, slots=True)
class Line:
    """A posting as a line of a statement."""

    entry: int
    position: int
    at: float
    account_id: str
    amount_microcredits: int
    kind: PostingKind
    note: str


@dataclass(frozen=True, slots=True)
class Statement:
    """One page of an account's postings over a period."""

    account: Account
    opening_microcredits: int
    closing_microcredits: int
    lines: list[Line]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class Escrow:
    """A task's escrow: its publisher, its amount, and when it was released."""

    task_id: str
    publisher: str
    amount_microcredits: int
    opened_at: float
    released_at: float | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What was owed and paid for a round, and the escrow left after it."""

    task_id: str
    round: int
    at: float
    owed_microcredits: int
    paid_microcredits: int
    escrow_microcredits: int
    digest: str

    @property
    def exhausted(self) -> bool:
        """Whether the escrow could not cover all dues."""
        return self.paid_microcredits < self.owed_microcredits


@dataclass(frozen=True, slots=True)
class Settled:
    """A settlement with its payments; `fresh` when this call made it."""

    settlement: Settlement
    payments: list[Payment]
    fresh: bool


@dataclass(frozen=True, slots=True)
class PaymentFilter:
    """Filter for payments; empty text means any, times are [since, until)."""

    task_id: str = ""
    device_id: str = ""
    owner_id: str = ""
    since: float = 0.0
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Earner:
    """What a device earned."""

    device_id: str
    owner_id: str
    paid_microcredits: int
    payments: int


@dataclass(frozen=True, slots=True)
class TaskCost:
    """What a task cost."""

    task_id: str
    escrow_microcredits: int
    paid_microcredits: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals."""

    outstanding_microcredits: int
    paid_microcredits: int
    earners: list[Earner]
    tasks: list[TaskCost]
    anomalies: list[str]


@dataclass(frozen=True, slots=True)
class TaskPrivacy:
    """ε spent in one task, and for what."""

    task_id: str
    rounds: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class PrivacyReport:
    """ε a device spent over all its tasks, and in each."""

    device_id: str
    delta: float
    answer: Answer
    tasks: list[TaskPrivacy]
