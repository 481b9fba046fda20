"""Which member heads a cluster, by the plain formula. An oracle for the planner's fast choice. [SCFL] §III-B."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def centrality(direct: npt.ArrayLike, members: Sequence[int]) -> list[int]:
    """Υ(n, C) of every member n: how many other members it has positive direct trust in."""
    positive = _among(direct, members) > 0
    np.fill_diagonal(positive, False)
    return [int(count) for count in np.count_nonzero(positive, axis=1)]


def choose_head(direct: npt.ArrayLike, trust: npt.ArrayLike, members: Sequence[int]) -> int:
    """The largest centrality; ties by Σ_{l in C} α(n, l) rounded to 1e-9, then the smallest index (A7)."""
    sums = [round(math.fsum(row), 9) for row in _among(trust, members)]
    ranked = zip(centrality(direct, members), sums, members, strict=True)
    return min((-links, -total, int(member)) for links, total, member in ranked)[2]


def _among(matrix: npt.ArrayLike, members: Sequence[int]) -> npt.NDArray[np.float64]:
    chosen = np.asarray(members)
    among: npt.NDArray[np.float64] = np.asarray(matrix, dtype=np.float64)[np.ix_(chosen, chosen)]
    return among
