"""Each device's worth to a model: Shapley values of a game whose players are devices.

`worth(coalition)` says how good the model of that coalition is, such as its accuracy on a publisher's examples. Sums of
updates are exact and invertible, so a coalition's model is an addition or a subtraction, never a training.

Z. Liu, Y. Chen, H. Yu, Y. Liu, L. Cui, "GTG-Shapley: efficient and accurate participant contribution evaluation in
federated learning", ACM TIST 2022: guided orders (every device comes first equally often) and truncation (an order ends
once the coalition is worth as much as everybody). Unlike that paper, every order is also gone through backwards
(antithetic: late and early places even out), and the devices after a truncation share what is left of the worth, so
that the values always sum to what everybody together is worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Coalition = frozenset[int]
Worth = Callable[[Coalition], float]


@dataclass(frozen=True, slots=True)
class Contributions:
    """Estimated Shapley values.

    Attributes
    ----------
    values : of every device; they sum to worth(everybody) − worth(nobody).
    errors : standard error of each value, over the orders gone through.
    evaluations : coalitions whose worth was asked for, each once.
    orders : orders gone through.
    converged : whether every error came below the tolerance before the evaluations were used up.
    """

    values: Vector
    errors: Vector
    evaluations: int
    orders: int
    converged: bool


def exact(devices: int, worth: Worth) -> Vector:
    """Shapley values by all 2ⁿ coalitions: φᵢ = Σ_S |S|!·(n − 1 − |S|)!/n! · (v(S ∪ i) − v(S))."""
    known = _Remembered(worth)
    values = np.zeros(devices)
    for size in range(devices):
        share = math.factorial(size) * math.factorial(devices - 1 - size) / math.factorial(devices)
        for members in combinations(range(devices), size):
            coalition = frozenset(members)
            for device in set(range(devices)) - coalition:
                values[device] += share * (known(coalition | {device}) - known(coalition))
    return values


def without_each(devices: int, worth: Worth) -> Vector:
    """What everybody is worth more with a device than without it."""
    everybody = frozenset(range(devices))
    whole = worth(everybody)
    return np.array([whole - worth(everybody - {device}) for device in range(devices)])


def sampled(
    devices: int,
    worth: Worth,
    rng: np.random.Generator,
    *,
    tolerance: float = 0.01,
    truncation: float = 0.005,
    max_evaluations: int = 20_000,
) -> Contributions:
    """Shapley values by guided, truncated, antithetic sampling.

    `tolerance` (of standard errors) and `truncation` are shares of what everybody is worth more than nobody. Sampling
    ends with the first whole turn of 2n orders after which every error is below the tolerance, or when
    `max_evaluations` are used up. Few devices are not sampled: where all coalitions can be asked for, they are.
    """
    if devices < 1:
        raise ValueError(f"there are {devices} devices; contributions need at least one")
    known = _Remembered(worth)
    if 2**devices <= max_evaluations:
        return Contributions(exact(devices, known), np.zeros(devices), known.asked, 0, True)
    nobody, everybody = known(frozenset()), known(frozenset(range(devices)))
    scale = abs(everybody - nobody)
    pairs: list[Vector] = []
    errors, converged = np.full(devices, math.inf), False
    for order in _guided(devices, rng):
        if pairs and (known.asked >= max_evaluations or len(pairs) >= max_evaluations):
            break
        there, back = (_marginals(o, known, nobody, everybody, truncation * scale) for o in (order, order[::-1]))
        pairs.append((there + back) / 2)
        if len(pairs) >= 2 and len(pairs) % devices == 0:
            errors = np.std(pairs, axis=0, ddof=1) / math.sqrt(len(pairs))
            converged = bool(errors.max() <= tolerance * scale)
            if converged:
                break
    if len(pairs) >= 2:
        errors = np.std(pairs, axis=0, ddof=1) / math.sqrt(len(pairs))
    return Contributions(np.mean(pairs, axis=0), errors, known.asked, 2 * len(pairs), converged)


def shares(values: Vector, pot: int) -> list[int]:
    """A pot of whole units divided by contribution, to the last unit; who contributes nothing or harms gets nothing.

    Largest remainders first, then the order of devices.
    """
    wanted = np.maximum(values, 0.0)
    if pot <= 0 or not wanted.any():
        return [0] * len(values)
    exactly = [float(value) / math.fsum(wanted.tolist()) * pot for value in wanted]
    paid = [math.floor(share) for share in exactly]
    order = sorted(range(len(paid)), key=lambda i: (paid[i] - exactly[i], i))
    for device in [i for i in order if wanted[i] > 0][: pot - sum(paid)]:
        paid[device] += 1
    return paid


class _Remembered:
    """A worth that is asked for each coalition once."""

    def __init__(self, worth: Worth) -> None:
        self._worth, self._known = worth, dict[Coalition, float]()

    def __call__(self, coalition: Coalition) -> float:
        if coalition not in self._known:
            found = float(self._worth(coalition))
            if not math.isfinite(found):
                raise ValueError(f"the worth of {len(coalition)} devices is {found}; it must be a finite number")
            self._known[coalition] = found
        return self._known[coalition]

    @property
    def asked(self) -> int:
        return len(self._known)


def _guided(devices: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Random orders in which every device comes first once in each turn of n."""
    while True:
        for first in rng.permutation(devices).tolist():
            others = [device for device in rng.permutation(devices).tolist() if device != first]
            yield [first, *others]


def _marginals(order: list[int], worth: Worth, nobody: float, everybody: float, truncation: float) -> Vector:
    """What each device of an order adds to those before it; they sum to everybody's worth."""
    marginals, reached, coalition = np.zeros(len(order)), nobody, frozenset[int]()
    for place, device in enumerate(order):
        # Never before the first device: without it an order would say nothing.
        if place and abs(everybody - reached) <= truncation:
            marginals[order[place:]] = (everybody - reached) / (len(order) - place)
            break
        coalition |= {device}
        value = worth(coalition)
        marginals[device], reached = value - reached, value
    return marginals
