"""Centred clipping: no update pulls the result further than a radius per iteration.

S. P. Karimireddy, L. He, M. Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.aggregation.domain.rules.geometry import Cloud
from services.aggregation.domain.rules.rows import Vector
from services.aggregation.domain.rules.verdict import Mixture
from services.aggregation.errors import BadRule


@dataclass(frozen=True, slots=True)
class CentredClipping:
    """v ← v + Σ wᵢ·(xᵢ − v)·min(1, radius / ‖xᵢ − v‖) / Σ wᵢ, `iterations` times, from v = centre.

    Each v is the centre and a mixture of what lies between it and the updates, so only the shares are kept.
    """

    radius: float
    iterations: int
    centre: tuple[float, ...] | None = None

    def origin(self, elements: int) -> Vector:
        """The centre, 0 where none is given."""
        if self.centre is None:
            return np.zeros(elements)
        if len(self.centre) != elements:
            raise BadRule(f"parameters.centre: has {len(self.centre)} numbers, the updates have {elements}")
        return np.array(self.centre)

    def judge(self, cloud: Cloud) -> Mixture:
        """All updates count, distant ones less."""
        shares = np.zeros(cloud.count)
        weights = cloud.weights / cloud.weights.sum()
        for _ in range(self.iterations):
            distances = np.sqrt(cloud.squared_distances_to(shares))
            pull = weights * np.minimum(1.0, self.radius / np.maximum(distances, self.radius))
            shares = shares * (1.0 - pull.sum()) + pull
        return Mixture(shares)
