"""Money is whole micro-credits. Whatever is not is rounded here and nowhere else.

One amount is rounded down when it is paid and up when it must be there or is taken off. Amounts that belong together
are rounded together, so that they sum to what there is to the micro-credit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

MICRO = 1_000_000
"""Micro-credits in a credit."""


def whole(microcredits: float | Fraction, *, up: bool = False) -> int:
    """An amount in whole micro-credits: down, or with `up` up."""
    return math.ceil(microcredits) if up else math.floor(microcredits)


def from_credits(credits: float, *, up: bool = False) -> int:
    """Credits in whole micro-credits: down, or with `up` up."""
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
    """Micro-credits as credits for people, exactly: 1370001 is "1.370001"."""
    return f"{Decimal(microcredits).scaleb(-6).normalize():f}"
