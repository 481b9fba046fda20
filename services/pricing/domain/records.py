"""What the stores return and the use cases speak of, besides the domain's own objects."""

from __future__ import annotations

from dataclasses import dataclass

from services.pricing.domain.ledger import Payment


@dataclass(frozen=True, slots=True)
class Account:
    """An account and what is in it."""

    id: str
    balance_microcredits: int
    opened_at: float


@dataclass(frozen=True, slots=True)
class Line:
    """A posting as a statement shows it."""

    entry: int
    position: int
    at: float
    account_id: str
    amount_microcredits: int
    kind: str
    note: str


@dataclass(frozen=True, slots=True)
class Statement:
    """An account's postings over a period, a page of them."""

    account: Account
    opening_microcredits: int
    closing_microcredits: int
    lines: list[Line]
    next_cursor: str


@dataclass(frozen=True, slots=True)
class Escrow:
    """A task's escrow: who pays, what was put in, and when it was given back."""

    task_id: str
    publisher: str
    amount_microcredits: int
    opened_at: float
    released_at: float | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """What was owed and paid for a round, and what it left in escrow."""

    task_id: str
    round: int
    at: float
    owed_microcredits: int
    paid_microcredits: int
    escrow_microcredits: int
    digest: str

    @property
    def exhausted(self) -> bool:
        """Whether the escrow could not cover all that was owed."""
        return self.paid_microcredits < self.owed_microcredits


@dataclass(frozen=True, slots=True)
class Settled:
    """A settlement with its payments; `fresh` when this call made it."""

    settlement: Settlement
    payments: list[Payment]
    fresh: bool


@dataclass(frozen=True, slots=True)
class PaymentFilter:
    """Which payments are asked for; empty text means any, times are [since, until)."""

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
    """ε spent in one task."""

    task_id: str
    rounds: int
    epsilon: float
    unit: str


@dataclass(frozen=True, slots=True)
class PrivacyReport:
    """ε a device spent over all its tasks, and in each."""

    device_id: str
    delta: float
    epsilon: float
    tasks: list[TaskPrivacy]
