"""Anomalous payments: far from their round's median, or reduced because the escrow ran out."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from services.pricing.domain.ledger import Payment
from services.pricing.domain.money import credits

DEVIATIONS = 3.0
_NORMAL = 1.4826
"""Scales the median absolute deviation (MAD) of normal numbers to their standard deviation."""


def find_outliers(payments: Sequence[Payment]) -> list[Payment]:
    """Payments of one round more than three deviations from its median, deviations measured by the MAD.

    Where more than half of the payments are equal the MAD is 0; then payments of twice the median or more are outliers.
    """
    if len(payments) < 3:
        return []
    amounts = [p.amount_microcredits for p in payments]
    middle = median(amounts)
    spread = _NORMAL * median(abs(amount - middle) for amount in amounts)
    if spread == 0:
        return [p for p in payments if p.amount_microcredits >= 2 * middle]
    return [p for p in payments if abs(p.amount_microcredits - middle) > DEVIATIONS * spread]


def describe_outliers(payments: Sequence[Payment]) -> list[str]:
    """One line per outlier of a round."""
    outliers = find_outliers(payments)
    if not outliers:
        return []
    middle = median(p.amount_microcredits for p in payments)
    return [
        f"payment {p.number}: {credits(p.amount_microcredits)} credits to {p.device_id} in round {p.round} of "
        f"{p.task_id}, where the median is {credits(middle)} ({p.because})"
        for p in outliers
    ]
