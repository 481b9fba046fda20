"""Rules of the byzfl package by our names, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Combine = Callable[[Matrix], NDArray[np.float64]]


@cache
def has_byzfl() -> bool:
    """Whether byzfl is installed. Only its formulas are imported; its demos need further packages."""
    if "byzfl" in sys.modules:
        return True
    spec = importlib.util.find_spec("byzfl")
    if spec is None:
        return False
    package = types.ModuleType("byzfl")
    package.__path__ = list(spec.submodule_search_locations or [])
    sys.modules["byzfl"] = package
    return True


def byzfl_rule(name: str, liars: int, radius: float) -> Combine | None:
    """Return byzfl's rule of this name; None without byzfl."""
    if not has_byzfl():
        return None
    rules = importlib.import_module("byzfl.aggregators")
    mixing = importlib.import_module("byzfl.aggregators.preaggregators").NNM(f=liars)
    pre, _, method = name.rpartition("+")
    rule: Any = {
        "mean": lambda: rules.Average(),
        "median": lambda: rules.Median(),
        "trimmed-mean": lambda: rules.TrMean(f=liars),
        "geometric-median": lambda: rules.GeometricMedian(),
        "krum": lambda: rules.Krum(f=liars),
        "multi-krum": lambda: rules.MultiKrum(f=liars),
        "centred-clipping": lambda: rules.CenteredClipping(L=3, tau=radius),
        "mean-around-median": lambda: rules.Meamed(f=liars),
        "caf": lambda: rules.CAF(f=liars),
        # It trusts one device, which here is an honest one.
        "monna": lambda: rules.MoNNA(f=liars, idx=0),
    }[method]()
    return lambda updates: np.asarray(rule(mixing(updates.copy()) if pre else updates.copy()), np.float64)
