"""What a guarantee is worth when each record is used only with some probability.

[SCFL] eq (10), the amplification of B. Balle, G. Barthe, M. Gaboardi, "Privacy Amplification by Subsampling" (2018).
It turns one (ε, δ) into another; many rounds compose far better through `renyi.sampled_gaussian_loss`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from coterie.privacy.preconditions import check_not_negative, check_rate


class Guarantee(NamedTuple):
    """An (ε, δ) pair."""

    epsilon: float
    delta: float


def amplify(epsilon: float, delta: float, rate: float) -> Guarantee:
    """ε' = ln(1 + λ(e^ε − 1)), δ' = λδ at sampling rate λ: [SCFL] eq (10), free of overflow.

    Never above ε; equal to it only at rate 1 (or ε = 0).
    """
    check_not_negative("epsilon", epsilon)
    if check_rate(rate) == 1.0 or math.isinf(epsilon):
        return Guarantee(epsilon, rate * check_not_negative("delta", delta))
    if epsilon < 1.0:
        amplified = math.log1p(rate * math.expm1(epsilon))
    else:
        amplified = epsilon + math.log(rate + (1.0 - rate) * math.exp(-epsilon))
    return Guarantee(min(epsilon, amplified), rate * check_not_negative("delta", delta))


def before_sampling(epsilon: float, delta: float, rate: float) -> Guarantee:
    """The guarantee a mechanism may have on its sample to give (ε, δ) overall: the inverse of `amplify`."""
    check_not_negative("epsilon", epsilon)
    if check_rate(rate) == 1.0 or math.isinf(epsilon):
        return Guarantee(epsilon, check_not_negative("delta", delta) / rate)
    if epsilon < 1.0:
        wanted = math.log1p(math.expm1(epsilon) / rate)
    else:
        wanted = epsilon - math.log(rate) + math.log1p((rate - 1.0) * math.exp(-epsilon))
    return Guarantee(max(epsilon, wanted), check_not_negative("delta", delta) / rate)
