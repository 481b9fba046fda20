"""The ledger: entries whose postings sum to zero, each sealed by a hash that covers the previous one.

An entry is a time, a kind, an idempotency key, a note, a digest of what it documents, and its postings in order. Its
hash is

    SHA-256( previous hash ‖ header ‖ postings )

over a canonical text: changing, dropping, inserting or reordering anything changes every later hash. Amounts are whole
micro-credits; nothing here rounds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.kit.errors import InvalidInput

GENESIS = hashlib.sha256(b"coterie book 1").hexdigest()
"""The previous hash of the first entry."""

MINT = "platform:mint"
FEES = "platform:fees"
MOST_MICROCREDITS = 2**62
"""Largest amount; keeps balances far below the limit of a database's integers."""


class Unbalanced(InvalidInput):
    """An entry's postings do not sum to zero, or one of them is zero."""


class Posting(NamedTuple):
    """One side of an entry: positive into the account, negative out of it. A tuple, because checks read millions."""

    account_id: str
    amount_microcredits: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One movement of money; `attachment` is the hexadecimal SHA-256 of what it documents, or empty."""

    number: int
    at: float
    kind: str
    key: str
    note: str
    attachment: str
    postings: tuple[Posting, ...]


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: how much was written, the last hash, and when."""

    entries: int
    postings: int
    payments: int
    hash: str
    at: float


class Payment(NamedTuple):
    """Money for a device's work in a round, and why. A tuple, like a posting."""

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


def check_balanced(postings: Sequence[Posting]) -> None:
    """Raise unless the postings sum to zero and none is zero."""
    total = sum(posting.amount_microcredits for posting in postings)
    if total or any(posting.amount_microcredits == 0 for posting in postings):
        raise Unbalanced(f"{len(postings)} postings sum to {total} or hold a zero; every entry must sum to zero")


def hash_entry(previous: str, entry: Entry) -> str:
    """Return the entry's hash, hexadecimal. JSON delimits texts; account ids hold no tab."""
    header = [entry.number, entry.at, entry.kind, entry.key, entry.note, entry.attachment, len(entry.postings)]
    lines = [f"{account_id}\t{amount}" for account_id, amount in entry.postings]
    text = "\n".join([previous, json.dumps(header), *lines])
    return hashlib.sha256(text.encode()).hexdigest()


def attach(payments: Sequence[Payment]) -> str:
    """SHA-256 over payments in order, as JSON arrays of their fields: the attachment of a settlement's entry."""
    return hashlib.sha256(json.dumps(payments).encode()).hexdigest() if payments else ""
