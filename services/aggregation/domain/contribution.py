"""Each device's worth to a model: Shapley values of a game whose players are devices.

`worth(coalition)` says how good the model of that coalition is, such as its accuracy on a publisher's examples. Sums of
updates are exact and invertible, so a coalition's model is an addition or a subtraction, never a training.

Z. Liu, Y. Chen, H. Yu, Y. Liu, L. Cui, "GTG-Shapley: efficient and accurate participant contribution evaluation in
federated learning", ACM TIST 2022: guided orders (every device comes first equally often) and truncation (an order ends
once the coalition is worth as much as all players). Unlike that paper, every order is also gone through backwards
(antithetic: late and early places even out), and the devices after a truncation share what is left of the worth, so
that the values always sum to the worth of the grand coalition.

An `Inquiry` asks for worths in batches, which a remote evaluator may measure. It is deterministic: the same answers
lead to the same next batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Coalition = frozenset[int]
Worth = Callable[[Coalition], float]
Mask = int
"""A coalition as bits: device i is in it when bit i is set."""
PAIRS_AT_A_TIME = 16
"""Orders gone through side by side, each with its reverse; a batch of questions has at most one for each."""


def members(mask: Mask) -> list[int]:
    """The devices of a coalition."""
    return [device for device in range(mask.bit_length()) if mask >> device & 1]


@dataclass(frozen=True, slots=True)
class Contributions:
    """Estimated Shapley values.

    Attributes
    ----------
    values : of every device; they sum to worth(all) − worth(∅).
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
    return _exact(devices, {mask: worth(frozenset(members(mask))) for mask in range(1 << devices)})


def _exact(devices: int, known: dict[Mask, float]) -> Vector:
    values = np.zeros(devices)
    whole = math.factorial(devices)
    for mask in range(1 << devices):
        size = mask.bit_count()
        for device in range(devices):
            if not mask >> device & 1:
                share = math.factorial(size) * math.factorial(devices - 1 - size) / whole
                values[device] += share * (known[mask | 1 << device] - known[mask])
    return values


def sampled(
    devices: int,
    worth: Worth,
    rng: np.random.Generator,
    *,
    tolerance: float = 0.01,
    truncation: float = 0.005,
    max_evaluations: int = 20_000,
) -> Contributions:
    """Shapley values by guided, truncated, antithetic sampling; see `Inquiry`."""
    inquiry = Inquiry(devices, rng, tolerance, truncation, max_evaluations)
    while questions := inquiry.questions():
        for mask in questions:
            inquiry.answer(mask, worth(frozenset(members(mask))))
    return inquiry.result()


@dataclass(slots=True)
class _Order:
    """An order on its way: who was met, and what each added to those before it."""

    devices: list[int]
    marginals: Vector
    mask: Mask = 0
    place: int = 0
    reached: float = math.nan

    @property
    def is_done(self) -> bool:
        return self.place >= len(self.devices)

    def walk(self, known: dict[Mask, float], met: set[Mask], all_players: float, truncation: float) -> Mask | None:
        """Goes on as far as worths are known; the coalition whose worth it needs next, None at its end.

        Coalitions on the way are added to `met`.
        """
        if math.isnan(self.reached):
            self.reached = known[0]
        while not self.is_done:
            # Never before the first device: without it an order would say nothing.
            if self.place and abs(all_players - self.reached) <= truncation:
                left = self.devices[self.place :]
                self.marginals[left] = (all_players - self.reached) / len(left)
                self.place = len(self.devices)
                return None
            device = self.devices[self.place]
            mask = self.mask | 1 << device
            if mask not in known:
                return mask
            self.marginals[device], self.reached = known[mask] - self.reached, known[mask]
            self.mask, self.place = mask, self.place + 1
            met.add(mask)
        return None


@dataclass(slots=True)
class Inquiry:
    """Asks for worths until every device's value is known well enough.

    `tolerance` (of standard errors) and `truncation` are shares of worth(all) − worth(∅). It ends
    with the first whole turn of 2n orders after which every error is below the tolerance, or when `max_evaluations` are
    used up. Few devices are not sampled: where all coalitions can be asked for, they are.
    """

    devices: int
    rng: np.random.Generator
    tolerance: float = 0.01
    truncation: float = 0.005
    max_evaluations: int = 20_000
    known: dict[Mask, float] = field(default_factory=dict)
    _met: set[Mask] = field(default_factory=set)
    _pairs: list[Vector] = field(default_factory=list)
    _orders: list[_Order] = field(default_factory=list)
    _ahead: Iterator[list[int]] | None = None
    _converged: bool = False

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise ValueError(f"there are {self.devices} devices; contributions need at least one")
        self._ahead = _guided(self.devices, self.rng)

    @property
    def all_players(self) -> Mask:
        return (1 << self.devices) - 1

    @property
    def asks_all(self) -> bool:
        """Whether every coalition is asked for."""
        return bool(1 << self.devices <= self.max_evaluations)

    def answer(self, mask: Mask, worth: float) -> None:
        """Takes note of a coalition's worth."""
        if not math.isfinite(worth):
            raise ValueError(f"the worth of {mask.bit_count()} devices is {worth}; it must be a finite number")
        self.known[mask] = float(worth)

    def questions(self) -> list[Mask]:
        """Coalitions whose worth it needs to go on; none when it has ended."""
        if self.asks_all:
            return [mask for mask in range(1 << self.devices) if mask not in self.known]
        if ends := [mask for mask in (0, self.all_players) if mask not in self.known]:
            return ends
        while True:
            if not self._orders:
                if self._has_ended():
                    return []
                self._begin()
            wanted = [order.walk(self.known, self._met, self._worth_of_all, self._cut) for order in self._orders]
            if asked := dict.fromkeys(mask for mask in wanted if mask is not None):
                return list(asked)
            forth_and_back = zip(self._orders[::2], self._orders[1::2], strict=True)
            self._pairs += [(there.marginals + back.marginals) / 2 for there, back in forth_and_back]
            self._orders = []

    def result(self) -> Contributions:
        """The values, once it has no more questions."""
        if self.asks_all:
            return Contributions(_exact(self.devices, self.known), np.zeros(self.devices), len(self.known), 0, True)
        errors = self._errors() if len(self._pairs) >= 2 else np.full(self.devices, math.inf)
        values = np.mean(self._pairs, axis=0)
        return Contributions(values, errors, len(self.known), 2 * len(self._pairs), self._converged)

    @property
    def _worth_of_all(self) -> float:
        return self.known[self.all_players]

    @property
    def _scale(self) -> float:
        return abs(self._worth_of_all - self.known[0])

    @property
    def _cut(self) -> float:
        return self.truncation * self._scale

    def _errors(self) -> Vector:
        return np.asarray(np.std(self._pairs, axis=0, ddof=1) / math.sqrt(len(self._pairs)))

    def _has_ended(self) -> bool:
        count = len(self._pairs)
        if count >= 2 and count % self.devices == 0:
            self._converged = bool(self._errors().max() <= self.tolerance * self._scale)
        # By what was needed so far, not by what is known: a taken-up inquiry may know answers to later questions.
        return count > 0 and (self._converged or max(len(self._met), count) >= self.max_evaluations)

    def _begin(self) -> None:
        """The next orders, each with its reverse; never beyond a turn in which every device comes first once."""
        assert self._ahead is not None
        within = self.devices - len(self._pairs) % self.devices
        for _ in range(min(PAIRS_AT_A_TIME, within)):
            order = next(self._ahead)
            self._orders += [_Order(item, np.zeros(self.devices)) for item in (order, order[::-1])]


def _guided(devices: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Random orders in which every device comes first once in each turn of n."""
    while True:
        for first in rng.permutation(devices).tolist():
            others = [device for device in rng.permutation(devices).tolist() if device != first]
            yield [first, *others]
