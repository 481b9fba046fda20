"""Empirical lower bounds on ε beside the ε that the ledger claims; `lab run ours-audit` runs every mechanism.

The audit plants a *canary*: it makes the same release many times in two worlds that differ in what one charge is about,
a contribution present or left out, present or replaced. How often an observer distinguishes the worlds gives a lower
bound on ε (Clopper–Pearson, total error probability 1 in 10,000). The claim is the composition of the charges that the
code itself made. A bound above its claim proves the claim false. A bound below proves nothing: an audit finds only what
it looks for, which is values, the fineness of floats, and every figure sent with them.

Mechanisms are the product's code from the release or strategy on. Noise is seeded, so a run can be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.accounting import Adjacency, Charge, total
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import Stream
from coterie_lab.canaries import Sight

Floats = NDArray[np.float64]
DELTAS = (1e-5, 1e-3, 0.01, 0.05)
"""A claim is a curve; where δ is large, few runs show a false one."""
CHANCE_OF_ERROR = 1e-4
QUICK_RUNS = 400
_THRESHOLDS = 64

Observe = Callable[[float, Stream], Sight]
"""One release in the world of a canary: 1 there, 0 left out, −1 replaced."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an audit says of one mechanism.

    Attributes:
        adjacency, unit: what its charge is about.
        delta: the δ at which the bound comes nearest to the claim, or passes it most.
        claimed: ε by the ledger.
        shown: ε that the runs prove it to be at least.
        figure: what told the worlds apart.
    """

    name: str
    adjacency: str
    unit: str
    delta: float
    claimed: float
    shown: float
    figure: str

    @property
    def is_false(self) -> bool:
        """Whether the claim is proved false."""
        return self.shown > self.claimed


def audit(name: str, observe: Observe, runs: int = QUICK_RUNS, seed: int = 0) -> Finding:
    """Plants the canary `runs` times in each world, and holds what is seen against what is charged."""
    charges = observe(1.0, SeededStream(seed, name, "charges")).charges
    other = 0.0 if all(charge.adjacency == "left-out" for charge in charges) else -1.0
    there, away = (_seen(observe, canary, name, seed, runs) for canary in (1.0, other))
    figures = sorted({figure for seen in (*there, *away) for figure in seen})
    error = CHANCE_OF_ERROR / (len(DELTAS) * len(figures))
    result = []
    for delta in DELTAS:
        claimed = _claim(charges, delta)
        for figure in figures:
            shown = lower_bound(_each(there, figure), _each(away, figure), delta, error)
            result.append(
                Finding(
                    name=name,
                    adjacency=charges[0].adjacency,
                    unit=charges[0].unit,
                    delta=delta,
                    claimed=claimed,
                    shown=shown,
                    figure=figure,
                )
            )
    return max(result, key=lambda finding: finding.shown - finding.claimed)


def _seen(observe: Observe, canary: float, name: str, seed: int, runs: int) -> list[Mapping[str, float]]:
    return [observe(canary, SeededStream(seed, name, str(canary), number)).figures for number in range(runs)]


def _each(seen: Sequence[Mapping[str, float]], figure: str) -> Floats:
    # The presence of a figure in one world only distinguishes the worlds.
    return np.array([figures.get(figure, -math.inf) for figures in seen])


def _claim(charges: Sequence[Charge], delta: float) -> float:
    adjacency: Adjacency = "left-out" if all(charge.adjacency == "left-out" for charge in charges) else "replaced"
    return total(charges, delta, charges[0].unit, adjacency)


# --- the bound --------------------------------------------------------------------------------------------------------


def lower_bound(there: Floats, away: Floats, delta: float, error: float) -> float:
    """ε that two samples of a figure prove a mechanism to have at least, at δ; wrong with a chance of `error`.

    (ε, δ)-privacy says P(event | one world) ≤ e^ε·P(event | other) + δ for every event. The event is chosen on the
    first quarter of the runs, of the form "at least t" or "at most t", and counted on the rest, where Clopper–Pearson
    bounds both chances: ε ≥ ln((low − δ)/high).
    """
    first = len(there) // 4
    learned, counted = (there[:first], away[:first]), (there[first:], away[first:])
    choices = [(test, order) for test in _tests(np.concatenate(learned)) for order in ((0, 1), (1, 0))]
    test, (one, other) = max(choices, key=lambda item: _ratio(learned[item[1][0]], learned[item[1][1]], item[0], delta))
    low, _ = clopper_pearson(_hits(counted[one], *test), len(counted[one]), error)
    _, high = clopper_pearson(_hits(counted[other], *test), len(counted[other]), error)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def clopper_pearson(hits: int, runs: int, error: float) -> tuple[float, float]:
    """Bounds on a chance of which `hits` of `runs` were seen; both hold but with a chance of `error`."""
    from scipy.stats import beta

    low = float(beta.ppf(error / 2.0, hits, runs - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1.0 - error / 2.0, hits + 1, runs - hits)) if hits < runs else 1.0
    return low, high


def _tests(pooled: Floats) -> list[tuple[float, int]]:
    finite = pooled[np.isfinite(pooled)]
    edges: Floats = np.zeros(0)
    if len(finite):
        edges = np.unique(np.quantile(finite, np.linspace(0.0, 1.0, _THRESHOLDS), method="nearest"))
    return [(float(edge), sign) for edge in edges for sign in (1, -1)]


def _ratio(first: Floats, second: Floats, test: tuple[float, int], delta: float) -> float:
    """What an event would show, cautiously: with a hit missing in the one world and three more in the other."""
    seen = (_hits(first, *test) - 1.0) / len(first) - delta
    return math.log(seen / ((_hits(second, *test) + 3.0) / len(second))) if seen > 0.0 else -math.inf


def _hits(values: Floats, threshold: float, sign: int) -> int:
    return int(np.count_nonzero(values >= threshold if sign > 0 else values <= threshold))
