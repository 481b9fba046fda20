"""What joining a task means for updates without noise."""

from __future__ import annotations

from coterie.privacy.ledger import PrivacyLedger

NO_NOISE = "none"


def is_consent(joined_as: str, asked: str) -> bool:
    """Whether joining a task of privacy `joined_as` consents to raw updates in work of privacy `asked`."""
    return joined_as == asked == NO_NOISE


def in_words(joined_as: str, ledger: PrivacyLedger) -> str:
    """What an owner should know who joins a task of this privacy; empty when there is nothing to say."""
    if joined_as != NO_NOISE or ledger.limit.allow_raw:
        return ""
    if ledger.is_owners:
        return "the owner's limit allows no update without noise, so every round will be declined"
    return "updates go without noise: joining is the consent, and a limit without allow_raw takes it back"
