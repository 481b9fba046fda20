"""A learner that a process without torch imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coterie.learning.numpy_learner import NumpyLearner


def line() -> NumpyLearner:
    """y = 2x + 1, to be found out."""
    inputs = np.linspace(-1.0, 1.0, 30)

    def residual(p: Mapping[str, Any], x: Any, y: Any) -> Any:
        return p["slope"][0] * x + p["shift"] - y

    return NumpyLearner(
        {"slope": np.zeros(1), "shift": np.zeros(())},
        (inputs, 2.0 * inputs + 1.0),
        losses=lambda p, x, y: residual(p, x, y) ** 2,
        gradients=lambda p, x, y: {"slope": (2 * residual(p, x, y) * x)[:, None], "shift": 2 * residual(p, x, y)},
    )
