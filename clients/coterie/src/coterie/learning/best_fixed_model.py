"""The best fixed model in hindsight, against which the regret of online learning is measured.

    regret = Σ_t f_t(x_t) − min_x Σ_t f_t(x),      f_t the mean loss of the batch that arrived in round t

For a convex loss this is the minimum; for other losses it is the best point that descent from the last model reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.learning.learner import Guarded, Indices
from coterie.learning.models import Flat, Vector

MOST_STEPS = 200


def best_fixed_model(learner: Guarded, flat: Flat, start: Vector, batches: Sequence[Indices]) -> float:
    """The least Σ_t f_t(x) that quasi-Newton steps from `start` find; the learner's model is left as it was."""
    from scipy.optimize import minimize

    held = learner.parameters()
    alike = len({len(batch) for batch in batches}) == 1
    # Of batches of one size the sum of means is the mean of all, which is one pass instead of one for each.
    pieces = [np.concatenate(batches)] if alike else list(batches)
    times = float(len(batches)) if alike else 1.0

    def total(vector: NDArray[np.float64]) -> tuple[float, NDArray[Any]]:
        learner.load(flat.put(vector, held))
        loss = sum(learner.loss_of(piece) for piece in pieces)
        gradient = sum(flat.vector(learner.gradient_sum(piece, float("inf"))) / len(piece) for piece in pieces)
        return times * loss, times * np.asarray(gradient)

    try:
        first = total(start)[0]
        best = minimize(total, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS})
        return min(first, float(best.fun))
    finally:
        learner.load(held)
