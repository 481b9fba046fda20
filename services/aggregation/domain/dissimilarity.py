"""How far apart the updates of one model are: the condition under which multi-task learning is known to converge.

[DPVD]'s convergence needs gradients of bounded dissimilarity, ‖∇fᵢ − ∇F‖² ≤ ζ₁ + ζ₂‖∇F‖² with ζ₂ < 1/4. Its text was
not available, only that ζ₂ is the gradients' dissimilarity, that the bounds have the terms d²σ²max/2L (Theorem 1) and
η(1 − 4ζ₂) (Theorem 2), and that they fail from ζ₂ = 1/4 on. Hence the estimates here are ours, of released updates uᵢ
alone, which are −η times sums of gradients and carry their noise (the ratio does not depend on η). With U = Σwᵢuᵢ/W:

    ζ₂ ≤ Σ wᵢ‖uᵢ − U‖² / W‖U‖²      taking ζ₁ = 0, which makes it the largest

Noise with deviation sᵢ on each of e numbers adds A − B above and B below, A = Σwᵢesᵢ²/W, B = Σwᵢ²esᵢ²/W², in the mean.
(A − B)/B is n − 1 for n updates of equal weight and noise, so that noise makes a ratio below that larger; where it does
not, the ratio without noise is the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

LIMIT = 0.25
"""ζ₂ from which on nothing is known of convergence."""


class Told(NamedTuple):
    """A released update: what it weighs, its norm, and the deviation of noise on each of its numbers."""

    weight: float
    norm: float
    deviation: float


class Dissimilarity(NamedTuple):
    """ζ₂ at most, and the same less what noise adds in the mean; None where noise hides the mean update."""

    most: float
    without_noise: float | None


def dissimilarity(updates: Sequence[Told], mean_square: float, elements: int) -> Dissimilarity | None:
    """Of updates whose weighted mean has the squared norm `mean_square`; None for fewer than two, or a mean of zero."""
    total = math.fsum(update.weight for update in updates)
    if len(updates) < 2 or not total > 0.0 or not mean_square > 0.0:
        return None
    squares = math.fsum(update.weight * update.norm**2 for update in updates) / total
    apart = max(squares - mean_square, 0.0)
    above = math.fsum(update.weight * update.deviation**2 for update in updates) * elements / total
    below = math.fsum((update.weight * update.deviation) ** 2 for update in updates) * elements / total**2
    left = mean_square - below
    bare = max(apart - (above - below), 0.0) / left if left > 0.0 else None
    return Dissimilarity(max(apart / mean_square, bare or 0.0), bare)


def noise_term(deviations: Sequence[float], dimension: float, smoothness: float) -> float:
    """d²σ²max/2L of Theorem 1: what noise of deviation σ on a mean gradient leaves of the loss, each round."""
    return dimension**2 * max(deviations, default=0.0) ** 2 / (2.0 * smoothness)


def descent(dissimilarity_: float, mean_square: float, learning_rate: float, steps: int) -> float:
    """η(1 − 4ζ₂)‖∇F‖² of Theorem 2, with ‖∇F‖² from the mean update, which is −η times a sum of `steps` gradients."""
    return learning_rate * (1.0 - 4.0 * dissimilarity_) * mean_square / (learning_rate * steps) ** 2
