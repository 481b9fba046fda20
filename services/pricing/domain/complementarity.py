"""Linear complementarity: x ≥ 0, w = Mx + q ≥ 0, x·w = 0, by two finite pivoting methods.

`block_pivot` exchanges all infeasible variables at once and falls back to one at a time (the highest index) when that
stops helping; it ends for every P-matrix M. L. F. Portugal, J. J. Júdice and L. N. Vicente, A comparison of block
pivoting and interior-point algorithms for linear least squares problems with nonnegative variables, Mathematics of
Computation 63 (1994). `lemke` ends with a solution for every strictly copositive M (here: non-negative with a positive
diagonal), also where M is not a P-matrix and several solutions exist. C. E. Lemke, Bimatrix equilibrium points and
mathematical programming, Management Science 11 (1965).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from services.pricing.domain.influence import Matrix, Vector

Mask: TypeAlias = NDArray[np.bool_]

_PATIENCE = 3
_TOLERANCE = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class Complementary:
    """A solution of the problem (or the last trial if not `converged`) and the number of pivots."""

    values: Vector
    iterations: int
    converged: bool


def block_pivot(
    solve_on: Callable[[Mask], Vector],
    slack: Callable[[Vector], Vector],
    support: Mask,
    *,
    scale: float = 1.0,
    limit: int = 10_000,
) -> Complementary:
    """Solve by block principal pivoting from the guess `support`.

    Parameters
    ----------
    solve_on : the x that is zero off the mask and makes w zero on it.
    slack : w = Mx + q.
    scale : size of a typical slack; what is below 1e-13 of it counts as zero.
    """
    support = support.copy()
    best, patience = support.size + 1, _PATIENCE
    zero = _TOLERANCE * max(scale, np.finfo(float).tiny)
    for iteration in range(1, limit + 1):
        x = solve_on(support)
        wrong = np.where(support, x < -zero, slack(x) < -zero)
        count = int(wrong.sum())
        if count == 0:
            return Complementary(np.maximum(x, 0.0), iteration, True)
        if count < best:
            best, patience = count, _PATIENCE
        elif patience > 0:
            patience -= 1
        else:  # Murty's least-index rule (from the top): slow, but it cannot cycle
            last = int(np.flatnonzero(wrong)[-1])
            wrong = np.zeros_like(wrong)
            wrong[last] = True
        support ^= wrong
    return Complementary(np.maximum(x, 0.0), limit, False)


def lemke(matrix: Matrix, offset: Vector) -> Complementary:
    """Solve by Lemke's method on a dense tableau; ties leave by the lexicographic rule, so it cannot cycle."""
    n = offset.size
    if (offset >= 0).all():
        return Complementary(np.zeros(n), 0, True)
    # Columns: w (0..n−1), x (n..2n−1), the artificial z (2n), the right-hand side.
    tableau = np.hstack([np.eye(n), -matrix, -np.ones((n, 1)), offset[:, None]])
    basis = np.arange(n)
    row, entering = int(np.argmin(offset)), 2 * n
    for iteration in range(1, 50 * n + 100):
        leaving = int(basis[row])
        _pivot(tableau, row, entering)
        basis[row] = entering
        if leaving == 2 * n:
            values = np.zeros(2 * n)
            values[basis] = tableau[:, -1]
            return Complementary(np.maximum(values[n:], 0.0), iteration, True)
        entering = leaving + n if leaving < n else leaving - n
        candidates = np.flatnonzero(tableau[:, entering] > 1e-12)
        if candidates.size == 0:
            break
        row = _leaving_row(tableau, candidates, entering, basis, n)
    return Complementary(np.zeros(n), iteration, False)


def _pivot(tableau: Matrix, row: int, column: int) -> None:
    tableau[row] /= tableau[row, column]
    factors = tableau[:, column].copy()
    factors[row] = 0.0
    tableau -= np.outer(factors, tableau[row])


def _leaving_row(tableau: Matrix, candidates: NDArray[np.intp], entering: int, basis: NDArray[np.intp], n: int) -> int:
    """Lexicographic minimum ratio; the artificial variable leaves as soon as it may."""
    pivots = tableau[candidates, entering]
    ratio = tableau[candidates, -1] / pivots
    tied = candidates[ratio <= ratio.min() + 1e-13 * max(1.0, abs(float(ratio.min())))]
    artificial = tied[basis[tied] == 2 * n]
    if artificial.size:
        return int(artificial[0])
    for column in range(n):
        if tied.size == 1:
            break
        ratio = tableau[tied, column] / tableau[tied, entering]
        tied = tied[ratio <= ratio.min()]
    return int(tied[0])
