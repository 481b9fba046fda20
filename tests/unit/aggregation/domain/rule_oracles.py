"""The rules once more, by other means: plain Python on small cases, and the byzfl package.

byzfl's own `__init__` imports demos whose requirements the tests do not install, so its two modules of formulas are
imported around it.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import statistics
import sys
import types
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

Update = Sequence[float]


def byzfl(module: str = "aggregators") -> Any:
    """byzfl's module of that name."""
    if "byzfl" not in sys.modules:
        spec = importlib.util.find_spec("byzfl")
        assert spec is not None, "byzfl is missing: make install"
        package = types.ModuleType("byzfl")
        package.__path__ = list(spec.submodule_search_locations or [])
        sys.modules["byzfl"] = package
    return importlib.import_module(f"byzfl.{module}")


def columns(updates: Sequence[Update]) -> list[tuple[float, ...]]:
    return list(zip(*updates, strict=True))


def mean(updates: Sequence[Update], weights: Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [math.fsum(w * x for w, x in zip(weights, c, strict=True)) / total for c in columns(updates)]


def median(updates: Sequence[Update]) -> list[float]:
    return [statistics.median(column) for column in columns(updates)]


def weighted_median(updates: Sequence[Update], weights: Sequence[int]) -> list[float]:
    """Each value as often as it weighs."""
    return [
        statistics.median([x for x, w in zip(column, weights, strict=True) for _ in range(w)])
        for column in columns(updates)
    ]


def trimmed(updates: Sequence[Update], f: int, weights: Sequence[float]) -> list[float]:
    result = []
    for column in columns(updates):
        retained = sorted(zip(column, weights, strict=True))[f : len(column) - f]
        result.append(math.fsum(x * w for x, w in retained) / math.fsum(w for _, w in retained))
    return result


def around_median(updates: Sequence[Update], f: int) -> list[float]:
    result = []
    for column in columns(updates):
        middle = statistics.median(column)
        retained = sorted(column, key=lambda x: (abs(x - middle), x))[: len(column) - f]
        result.append(math.fsum(retained) / len(retained))
    return result


def squared(a: Update, b: Update) -> float:
    return math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def krum_scores(updates: Sequence[Update], f: int) -> list[float]:
    n = len(updates)
    scores = []
    for i in range(n):
        others = sorted(squared(updates[i], updates[j]) for j in range(n) if j != i)[: n - f - 1]
        scores.append(math.fsum(others) / max(len(others), 1))
    return scores


def krum(updates: Sequence[Update], f: int) -> list[float]:
    scores = krum_scores(updates, f)
    return list(updates[scores.index(min(scores))])


def multi_krum(updates: Sequence[Update], f: int) -> list[float]:
    """By trying every choice of n − f updates: the one whose scores sum to the least."""
    n, scores = len(updates), krum_scores(updates, f)
    best = min(combinations(range(n), n - f), key=lambda chosen: math.fsum(scores[i] for i in chosen))
    return mean([updates[i] for i in best], [1.0] * len(best))


def clipping(updates: Sequence[Update], radius: float, iterations: int, weights: Sequence[float]) -> list[float]:
    here = [0.0] * len(updates[0])
    for _ in range(iterations):
        pulls = []
        for update in updates:
            distance = math.sqrt(squared(update, here))
            factor = min(1.0, radius / distance) if distance else 1.0
            pulls.append([(x - v) * factor for x, v in zip(update, here, strict=True)])
        here = [v + pull for v, pull in zip(here, mean(pulls, weights), strict=True)]
    return here


def nearest_neighbour_means(updates: Sequence[Update], f: int) -> list[list[float]]:
    n = len(updates)
    mixed = []
    for i in range(n):
        near = sorted(range(n), key=lambda j: (j != i, squared(updates[i], updates[j]), j))[: n - f]
        mixed.append(mean([updates[j] for j in near], [1.0] * len(near)))
    return mixed


def sum_of_distances(point: Update, updates: Sequence[Update], weights: Sequence[float]) -> float:
    return math.fsum(w * math.sqrt(squared(point, u)) for u, w in zip(updates, weights, strict=True))


def least_sum_of_distances(updates: Sequence[Update], weights: Sequence[float]) -> float:
    """By a general optimiser from several starts, and at every update."""
    points = np.array(updates)
    starts = [points.mean(axis=0), np.median(points, axis=0), *points[:3]]
    options: Any = {"xatol": 1e-12, "fatol": 1e-14, "maxiter": 20_000, "maxfev": 20_000}

    def cost(point: npt.NDArray[np.float64]) -> float:
        return sum_of_distances(point.tolist(), updates, weights)

    costs = [float(minimize(cost, start, method="Nelder-Mead", options=options).fun) for start in starts]
    return min([*costs, *(sum_of_distances(u, updates, weights) for u in updates)])
