"""Krum and multi-Krum: the updates with the nearest neighbours are taken as they are.

P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
descent", NeurIPS 2017. Unlike that paper, a score is the mean, not the sum, over the n − f − 1 nearest others
instead of n − f − 2, and 2f < n is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.aggregation.domain.rules.geometry import Cloud
from services.aggregation.domain.rules.rows import Matrix, Vector
from services.aggregation.domain.rules.verdict import Mixture


def scores(squared_distances: Matrix, f: int) -> Vector:
    """Mean squared distance of each point to its n − f − 1 nearest others; 0 for a point alone."""
    n = len(squared_distances)
    if n == 1:
        return np.zeros(1)
    others = squared_distances + np.diag(np.full(n, -1.0))
    nearest = np.sort(others, axis=1)[:, 1 : n - f]
    result: Vector = nearest.mean(axis=1)
    return result


@dataclass(frozen=True, slots=True)
class Krum:
    """The update of the lowest score, or with `several` the mean of the n − f lowest.

    Of equal scores the heavier device comes first, then the order of devices decides.
    """

    f: int
    several: bool = False

    def origin(self, elements: int) -> None:
        """None: see `Linear`."""

    def judge(self, cloud: Cloud) -> Mixture:
        """Return the shares of the selected updates, and why the others are excluded."""
        result = scores(cloud.gram.squared_distances(), self.f)
        best = np.lexsort((cloud.precedence, -cloud.weights, result))
        taken = best[: cloud.count - self.f] if self.several else best[:1]
        shares = np.zeros(cloud.count)
        shares[taken] = cloud.weights[taken] if self.several else 1.0
        return Mixture(shares, {int(i): self._why(result, int(i), int(best[0])) for i in best[len(taken) :]})

    def _why(self, values: Vector, point: int, best: int) -> str:
        reason = f"its mean squared distance to the nearest others is {values[point]:.6g}"
        if self.several:
            return f"{reason}, among the {self.f} highest"
        if values[point] == values[best]:
            return f"{reason}, as low as that of the one taken, which comes first"
        return f"{reason}, the lowest is {values[best]:.6g}"
