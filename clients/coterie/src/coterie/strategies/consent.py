"""Consent to updates without noise by joining a task."""

from __future__ import annotations

from coterie.agent.report import without_figures
from coterie.errors import Declined
from coterie.privacy.accounting import Unit
from coterie.privacy.ledger import PrivacyLedger
from coterie.privacy.lifetime import Lifetime
from coterie.records import TaskSpecification
from coterie.secure_sums.joining import Joined

NO_NOISE = "none"
SAME_NOISE = "uniform"


def hides(privacy: str, joined: Joined | None) -> bool:
    """Whether a task hides its devices' data: by noise, or by secure sums."""
    return privacy != NO_NOISE or (joined is not None and joined.secure)


def is_consent(joined_as: str, asked: str) -> bool:
    """Whether joining a task of privacy `joined_as` consents to raw updates in work of privacy `asked`."""
    return joined_as == asked == NO_NOISE


def refuse_other_privacy(joined_as: str, asked: str) -> None:
    """Decline work of another privacy than the task had when the device joined, whatever the owner allows."""
    if joined_as != asked:
        raise Declined(f"this device joined the task with privacy {joined_as!r}, this work has {asked[:40]!r}")


def as_taken(report: str, joined_as: str) -> str:
    """Return a stored report without metrics of private data, if the task promises noise."""
    return report if joined_as == NO_NOISE else without_figures(report)


def unit_of(specification: TaskSpecification) -> Unit:
    """Return what a task's noise hides: one example if drawn per example, else a whole device."""
    of_examples = specification.privacy == "partial" or specification.incentive == "stackelberg"
    return "example" if of_examples or specification.privacy_unit == "example" else "device"


def lifetime_of(specification: TaskSpecification) -> Lifetime | None:
    """Return the cost of all rounds of a task together, if it is known before the first."""
    if specification.privacy != SAME_NOISE:
        return None
    return Lifetime.of(specification.parameters, specification.rounds)


def in_words(joined_as: str, ledger: PrivacyLedger, lifetime: Lifetime | None = None) -> str:
    """Return the note for an owner who joins a task of this privacy; empty if none is needed.

    `lifetime` is the cost of all its rounds, if it is known before the first.
    """
    if lifetime is not None:
        return f"{lifetime}{_beyond(ledger, lifetime)}"
    if joined_as != NO_NOISE or ledger.limit.allow_raw:
        return ""
    if ledger.is_owners:
        return "the owner's limit allows no update without noise, so every round will be declined"
    return "updates go without noise: joining is the consent, and a limit without allow_raw takes it back"


def _beyond(ledger: PrivacyLedger, lifetime: Lifetime) -> str:
    """Return after how many rounds the owner's limit ends the work, if it does."""
    limit = ledger.limit
    within = ledger.rounds_within(lifetime.multiplier, lifetime.rounds)
    if within == lifetime.rounds:
        return ""
    return (
        f". The device's limit (ε = {limit.epsilon:g} at δ = {limit.delta:g}, {limit.question}) has room for {within} "
        "such rounds; `coterie privacy limit` changes it"
    )
