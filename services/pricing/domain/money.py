"""Amounts of money are whole micro-credits; all rounding happens here.

A single amount is rounded down when it is paid, and up when it is required or deducted. Amounts that belong together
are rounded together: they sum to the exact total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

MICRO = 1_000_000
"""Micro-credits in a credit."""


def whole(microcredits: float | Fraction, *, up: bool = False) -> int:
    """Round an amount to whole micro-credits: down, or with `up` up."""
    return math.ceil(microcredits) if up else math.floor(microcredits)


def from_credits(credits: float, *, up: bool = False) -> int:
    """Convert credits to whole micro-credits: down, or with `up` up."""
    return whole(credits * MICRO, up=up)


def round_together(numerators: Sequence[int], denominator: int, names: Sequence[str]) -> list[int]:
    """The amounts numerators/denominator in whole micro-credits, summing to their sum rounded down.

    Each is rounded down, and what is left goes to the largest fractions, then by name.
    """
    parts = [divmod(numerator, denominator) for numerator in numerators]
    amounts = [amount for amount, _ in parts]
    left = sum(numerators) // denominator - sum(amounts)
    for i in sorted(range(len(parts)), key=lambda i: (-parts[i][1], names[i]))[:left]:
        amounts[i] += 1
    return amounts


def apportion(total: int, weights: Sequence[int], names: Sequence[str]) -> list[int]:
    """Shares of `total` in proportion to `weights`, rounded together.

    They sum to `total` (to 0 when all weights are 0). With total ≤ Σ weights no share exceeds its weight.
    """
    sum_of_weights = sum(weights)
    if sum_of_weights == 0:
        return [0] * len(weights)
    return round_together([total * weight for weight in weights], sum_of_weights, names)


def credits(microcredits: float) -> str:
    """Format micro-credits as credits, exactly: 1370001 is "1.370001"."""
    return f"{Decimal(microcredits).scaleb(-6).normalize():f}"
