"""Secure sums: the duties of a clerk and the documents it reads."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.base import Record
from coterie.records.enums import DutyKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty(Record):
    """Something a clerk is to do."""

    kind: DutyKind
    """One of key_offer, ready_check, commit, answer and forget."""
    task_id: str
    round: int
    session_number: int
    """Committees that served this sum in this round, this one included."""
    cohort: int
    """Which sum of the round, from 0."""
    deadline_at: float
    """Until when; of an offer, when the whole session ends at the latest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorList(Record):
    """Devices whose updates are in a sum, as clerks are asked to agree to them."""

    survivors: tuple[tuple[str, ...], ...]
    """Device id and root of its seeds' commitments (hexadecimal), by id."""
    digest: str
    """What clerks sign: SHA-256 of terms and survivors, hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedShares(Record):
    """Shares whose sums a clerk is to hand in now."""

    wanted: tuple[int, ...]
