"""Prices, accounts, payments."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.base import Extended, Object, Record
from coterie.records.enums import PostingKind, QuoteStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(Record):
    """What one device is offered."""

    device_id: str
    price_microcredits: int
    """Per unit of zCDP budget; 0 = nothing."""
    external_risk: float
    """External risk α·R, as the platform quotes it."""
    base_microcredits: int
    """For taking part at all."""
    slope_microcredits: int
    """Deducted per unit of noise variance."""
    expected: Extended
    """Noise variance or zCDP budget the platform expects the device to choose."""
    most_microcredits: int
    """Most the device can be paid for this round."""
    terms: Object
    """What else the device decides by; empty unless answers are priced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote(Record):
    """Prices of a round."""

    task_id: str
    round: int
    offers: tuple[Offer, ...]
    """One per participant; a device sees its own."""
    status: QuoteStatus
    """"ok", or an economic answer such as "infeasible"."""
    details: Object
    """Everything else the solver found."""
    pot_microcredits: int = 0
    """Pot of the round, shared by payoff or by quality; 0 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Record):
    """An account: `publisher:…`, `escrow:…`, `device:…`, `owner:…` or `platform:…`."""

    id: str
    balance_microcredits: int
    opened_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting(Record):
    """One side of an entry in the book."""

    entry: int
    at: float
    account_id: str
    amount_microcredits: int
    """Positive into the account, negative out of it."""
    kind: PostingKind
    """What it was, such as "deposit", "escrow", "payment" or "release"."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement(Record):
    """Postings of an account over a period, oldest first."""

    account: Account
    opening_microcredits: int
    """Balance before the period."""
    closing_microcredits: int
    """Balance after the period."""
    items: tuple[Posting, ...]
    next_cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment(Record):
    """One payment."""

    number: int
    at: float
    task_id: str
    round: int
    device_id: str
    owner_id: str
    amount_microcredits: int
    price_microcredits: int
    """Price it was paid at; 0 = not priced."""
    budget: float
    """Budget or variance it was paid for; 0 = none."""
    quality: float
    """Quality it was paid for; 0 = none."""
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Earner(Record):
    """What one device earned."""

    device_id: str
    owner_id: str
    paid_microcredits: int
    payments: int
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCost(Record):
    """What one task cost."""

    task_id: str
    escrow_microcredits: int
    """Still in escrow."""
    paid_microcredits: int
    rounds: int
    """Rounds settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Record):
    """Totals."""

    outstanding_microcredits: int
    """Sum of all escrows."""
    paid_microcredits: int
    """Sum of all payments."""
    earners: tuple[Earner, ...]
    """Dearest first, at most 20."""
    tasks: tuple[TaskCost, ...]
    """Dearest first, at most 100."""
    anomalies: tuple[str, ...]
    """Payments far from their round's median, and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Record):
    """Whether the book is sound."""

    sound: bool
    entries: int
    postings: int
    head: str
    """Hash of the last entry, hexadecimal."""
    faults: tuple[str, ...]
    """What is wrong; empty when sound."""
    seconds: float
    """How long the check took."""
