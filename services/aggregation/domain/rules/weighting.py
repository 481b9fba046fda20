"""How much each device's update may weigh: its weight, at most the trust the others give it.

A device earns its say: claiming many samples, or joining under many names, gives no more weight than the others' trust
in each of those names. A device nobody trusts has no say at all and is left out before any rule counts heads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from services.aggregation.domain.rules.rows import Vector
from services.aggregation.errors import BadWeights


def effective(count: int, weights: Sequence[float] | None, trust: Sequence[float] | None) -> Vector:
    """Weights of `count` devices: 1 where none are given, bounded by trust where that is given.

    Weights are at least 0, trust is from 0 to 1; at least one device must end with a weight above 0.
    """
    result = np.ones(count)
    if weights is not None:
        _check("weights", weights, count, np.inf)
        result = np.asarray(weights, np.float64).copy()
    if trust is not None:
        _check("trust", trust, count, 1.0)
        result = np.minimum(result, np.asarray(trust, np.float64))
    if not (result > 0).any():
        raise BadWeights("nobody has a weight above 0: give at least one device weight and trust")
    return result


def relative(weights: Sequence[float]) -> list[float]:
    """Weights as shares of the heaviest, so that trust, which is at most 1, can bound them."""
    most = max(weights)
    return [weight / most for weight in weights] if most > 0 else [1.0] * len(weights)


def why_weightless(device: int, trust: Sequence[float] | None) -> str:
    """Why a device of weight 0 is set aside."""
    return "the others give it no trust" if trust is not None and trust[device] == 0 else "its weight is 0"


def _check(name: str, values: Sequence[float], count: int, most: float) -> None:
    if len(values) != count:
        raise BadWeights(f"{name}: {len(values)} numbers for {count} updates; give one per device")
    for device, value in enumerate(values):
        if not 0 <= value <= most or np.isinf(value):
            bound = "at least 0" if np.isinf(most) else f"from 0 to {most:g}"
            raise BadWeights(f"{name}.{device}: must be {bound}, not {value}")
