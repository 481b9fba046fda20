"""Prices, accounts, payments."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import MOST_INT64, Answer, Body, Extended, Name, Object


class Offer(Answer):
    """What one device is offered."""

    device_id: str
    price_microcredits: int
    external_risk: float
    base_microcredits: int
    slope_microcredits: int
    expected: Extended
    most_microcredits: int
    terms: Object
    """What else the device decides by; empty unless answers are priced."""


class Quote(Answer):
    """Prices of a round."""

    task_id: str
    round: int
    offers: list[Offer]
    """One per participant; a device sees its own."""
    status: str
    details: Object
    pot_microcredits: int
    """Pot of the round, shared by payoff or by quality; 0 = none."""


class Account(Answer):
    """An account: `publisher:…`, `escrow:…`, `device:…`, `owner:…` or `platform:…`."""

    id: str
    balance_microcredits: int
    opened_at: float


class Posting(Answer):
    """One side of an entry in the book."""

    entry: int
    at: float
    account_id: str
    amount_microcredits: int
    """Positive into the account, negative out of it."""
    kind: str
    note: str


class Statement(Answer):
    """Postings of an account over a period, oldest first."""

    account: Account
    opening_microcredits: int
    closing_microcredits: int
    items: list[Posting]
    next_cursor: str


class NewDeposit(Body):
    """Credits for a publisher; repeating the same `key` changes nothing."""

    model_config = ConfigDict(json_schema_extra={"example": {"amount_microcredits": 5000000, "key": "invoice-1"}})

    amount_microcredits: Annotated[int, Field(ge=1, le=MOST_INT64)]
    key: Name


class Payment(Answer):
    """One payment."""

    number: int
    at: float
    task_id: str
    round: int
    device_id: str
    owner_id: str
    amount_microcredits: int
    price_microcredits: int
    budget: float
    quality: float
    because: str


class Earner(Answer):
    """What one device earned."""

    device_id: str
    owner_id: str
    paid_microcredits: int
    payments: int


class TaskCost(Answer):
    """What one task cost."""

    task_id: str
    escrow_microcredits: int
    paid_microcredits: int
    rounds: int


class Summary(Answer):
    """Totals."""

    outstanding_microcredits: int
    paid_microcredits: int
    earners: list[Earner]
    tasks: list[TaskCost]
    anomalies: list[str]


class Verification(Answer):
    """Whether the book is sound."""

    sound: bool
    entries: int
    postings: int
    head: str
    faults: list[str]
    seconds: float
