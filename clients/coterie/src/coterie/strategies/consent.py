"""What joining a task means for updates without noise."""

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
    """Whether a task hides what its devices' data say: by noise, or by telling their sum alone."""
    return privacy != NO_NOISE or (joined is not None and joined.secure)


def is_consent(joined_as: str, asked: str) -> bool:
    """Whether joining a task of privacy `joined_as` consents to raw updates in work of privacy `asked`."""
    return joined_as == asked == NO_NOISE


def refuse_other_privacy(joined_as: str, asked: str) -> None:
    """Declines work of another privacy than the task had when it was joined, whatever the owner allows."""
    if joined_as != asked:
        raise Declined(f"this task was joined with privacy {joined_as!r}, and this work calls itself {asked[:40]!r}")


def as_taken(report: str, joined_as: str) -> str:
    """A stored report as it may go: in a task joined with noise, without figures that nobody called public."""
    return report if joined_as == NO_NOISE else without_figures(report)


def unit_of(specification: TaskSpecification) -> Unit:
    """What the noise of a task hides: one example where it is drawn for examples, else a whole device."""
    of_examples = specification.privacy == "partial" or specification.incentive == "stackelberg"
    return "example" if of_examples or specification.privacy_unit == "example" else "device"


def lifetime_of(specification: TaskSpecification) -> Lifetime | None:
    """What all rounds of a task cost together, where that is known before the first."""
    if specification.privacy != SAME_NOISE:
        return None
    return Lifetime.of(specification.parameters, specification.rounds)


def in_words(joined_as: str, ledger: PrivacyLedger, lifetime: Lifetime | None = None) -> str:
    """What an owner should know who joins a task of this privacy; empty when there is nothing to say.

    `lifetime` is what all its rounds cost, where that is known before the first.
    """
    if lifetime is not None:
        return f"{lifetime}{_beyond(ledger, lifetime)}"
    if joined_as != NO_NOISE or ledger.limit.allow_raw:
        return ""
    if ledger.is_owners:
        return "the owner's limit allows no update without noise, so every round will be declined"
    return "updates go without noise: joining is the consent, and a limit without allow_raw takes it back"


def _beyond(ledger: PrivacyLedger, lifetime: Lifetime) -> str:
    """After how many rounds the owner's limit ends the work, where it does."""
    limit = ledger.limit
    within = ledger.rounds_within(lifetime.multiplier, lifetime.rounds)
    if within == lifetime.rounds:
        return ""
    return (
        f". The device's limit (ε = {limit.epsilon:g} at δ = {limit.delta:g}, {limit.question}) has room for {within} "
        "such rounds; `coterie privacy limit` changes it"
    )
