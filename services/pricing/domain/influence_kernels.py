"""The diagonal of Σ by walks that meet in the middle, compiled. [MPPFL]

A separate module, because numba is slow to import and only large markets need it.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)  # type: ignore[misc, unused-ignore]  # numba has no types
def meet_in_the_middle(  # type: ignore[no-untyped-def]
    forward, backward, hops, discount, out
):  # pragma: no cover - compiled
    """Write the diagonal to `out`; `forward` and `backward` are W̃ and its transpose as (indptr, indices, data)."""
    n = out.size
    half = (hops + 1) // 2
    # ahead holds row i of W̃^p, behind column i of W̃^q; both as a dense vector and the list of its non-zeros.
    ahead, ahead_next = np.zeros(n), np.zeros(n)
    behind, behind_next = np.zeros(n), np.zeros(n)
    ahead_at, ahead_to = np.empty(n, np.int64), np.empty(n, np.int64)
    behind_at, behind_to = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        ahead[i] = behind[i] = 1.0
        ahead_at[0] = behind_at[0] = i
        ahead_count = behind_count = 1
        total = 0.0
        for p in range(1, half + 1):
            ahead_count = _walk(forward, ahead, ahead_at, ahead_count, to=ahead_next, to_list=ahead_to)
            ahead, ahead_next, ahead_at, ahead_to = ahead_next, ahead, ahead_to, ahead_at
            total += discount ** (2 * p - 2) * _dot(ahead, behind, behind_at, behind_count)
            if 2 * p > hops:
                break
            behind_count = _walk(backward, behind, behind_at, behind_count, to=behind_next, to_list=behind_to)
            behind, behind_next, behind_at, behind_to = behind_next, behind, behind_to, behind_at
            total += discount ** (2 * p - 1) * _dot(ahead, behind, behind_at, behind_count)
        out[i] = total
        for k in range(ahead_count):
            ahead[ahead_at[k]] = 0.0
        for k in range(behind_count):
            behind[behind_at[k]] = 0.0


@njit(cache=True)  # type: ignore[misc, unused-ignore]  # numba has no types
def _walk(  # type: ignore[no-untyped-def]
    graph, at, at_list, count, to, to_list
):  # pragma: no cover - compiled
    """One step of a sparse walk: `to` becomes `at` times the matrix, `at` is cleared; returns the non-zeros."""
    indptr, indices, data = graph
    reached = 0
    for k in range(count):
        row = at_list[k]
        mass = at[row]
        at[row] = 0.0
        for e in range(indptr[row], indptr[row + 1]):
            column = indices[e]
            share = mass * data[e]
            if share == 0.0:  # underflow; counting it would list the column twice
                continue
            if to[column] == 0.0:
                to_list[reached] = column
                reached += 1
            to[column] += share
    return reached


@njit(cache=True)  # type: ignore[misc, unused-ignore]  # numba has no types
def _dot(left, right, at, count):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    total = 0.0
    for k in range(count):
        total += left[at[k]] * right[at[k]]
    return total
