"""The book: entries whose postings sum to zero, each sealed by a hash that covers the one before it.

An entry is a moment, a kind, a key that can be used once, a note, a digest of what it documents, and its postings in
order. Its hash is

    SHA-256( previous hash ‖ header ‖ postings )

over a canonical text, so that nobody can change, drop, insert or reorder anything without changing every later hash.
Money is whole micro-credits; nothing here rounds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from services.kit.errors import InvalidInput

GENESIS = hashlib.sha256(b"coterie book 1").hexdigest()
"""What the first entry's hash covers in the place of a previous one."""

MINT = "platform:mint"
FEES = "platform:fees"
MOST_MICROCREDITS = 2**62
"""No balance gets near the limit of a database's whole numbers."""


class Unbalanced(InvalidInput):
    """An entry's postings do not sum to zero, or one of them moves nothing."""


class Posting(NamedTuple):
    """One side of an entry: positive into the account, negative out of it. A tuple: millions of them pass a check."""

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
    """Raises unless the postings sum to zero and each moves something."""
    total = sum(posting.amount_microcredits for posting in postings)
    if total or any(posting.amount_microcredits == 0 for posting in postings):
        raise Unbalanced(f"{len(postings)} postings sum to {total} or hold a zero; every entry must sum to zero")


def hash_entry(previous: str, entry: Entry) -> str:
    """The entry's hash, hexadecimal. JSON keeps text apart from its surroundings; account ids hold no tab."""
    header = [entry.number, entry.at, entry.kind, entry.key, entry.note, entry.attachment, len(entry.postings)]
    lines = [f"{account_id}\t{amount}" for account_id, amount in entry.postings]
    text = "\n".join([previous, json.dumps(header), *lines])
    return hashlib.sha256(text.encode()).hexdigest()


def attach(payments: Sequence[Payment]) -> str:
    """SHA-256 over payments in order, as JSON arrays of their fields: what a settlement's entry documents."""
    return hashlib.sha256(json.dumps(payments).encode()).hexdigest() if payments else ""
