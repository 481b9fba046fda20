"""How much of every device's privacy leaks through the others: the discounted K-hop leakage Σ of a social graph.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 2.3.

Weights W (W[i, j] ≥ 0 is the influence of j on i) are normalised to a row-stochastic W̃, and

    Σ = Σ_{k=1..K} λ^(k−1) W̃^k   with its diagonal set to zero once, at the end.

Σ is never formed above `DENSE_LIMIT` devices: Σx is K sparse products by Horner's rule minus diag·x, and the diagonal
is exact, each entry met in the middle: (W̃^(p+q))_ii = Σ_j (W̃^p)_ij (W̃^q)_ji with p = ⌈k/2⌉.

Unlike [MPPFL], the floor w_min is kept by raising the low entries and rescaling only the others (clipping and then
renormalising pushes clipped entries below the floor), and contraction is claimed in the max norm only: every row of Σ
sums to at most S = (1 − λ^K)/(1 − λ), whereas its spectral norm may be far larger (a star).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, gmres

from services.kit.errors import InvalidInput

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

DENSE_LIMIT = 2_000
"""Largest number of devices for which Σ is held as a dense matrix."""

_ROUNDING = 1e-12
_SOLVE_STEPS = 5_000


class InvalidInfluence(InvalidInput):
    """The influence graph cannot be used; the message names the row, column or value."""


class IsolatedDevice(InvalidInput):
    """A device without incoming influence has no row to normalise."""


@dataclass(frozen=True, slots=True, eq=False)
class Leakage:
    """The operator Σ.

    Attributes
    ----------
    forward, backward : W̃ and its transpose, sparse by rows, shape (n, n).
    hops, discount : K and λ.
    diagonal : diagonal of Σ before it is zeroed, which Horner's rule subtracts, shape (n,).
    diagonal_hops : number of hops the diagonal accounts for; equal to `hops` when it is exact.
    matrix : Σ itself when n ≤ DENSE_LIMIT, else None.
    """

    forward: sparse.csr_array
    backward: sparse.csr_array
    hops: int
    discount: float
    diagonal: Vector
    diagonal_hops: int
    matrix: Matrix | None

    @property
    def devices(self) -> int:
        """Number of devices n."""
        return int(self.forward.shape[0])

    @property
    def row_sum_limit(self) -> float:
        """S = (1 − λ^K)/(1 − λ), the row sums of Σ before its diagonal is zeroed and a bound after."""
        return float(sum(self.discount**k for k in range(self.hops)))

    def apply(self, x: Vector) -> Vector:
        """Σx: the external risk of every device when the budgets are x. K sparse products."""
        if self.matrix is not None:
            product: Vector = self.matrix @ x
            return product
        return self._horner(self.forward, x)

    def apply_transposed(self, x: Vector) -> Vector:
        """Σᵀx: the risk that each device causes, weighted by x."""
        if self.matrix is not None:
            product: Vector = self.matrix.T @ x
            return product
        return self._horner(self.backward, x)

    def _horner(self, step: sparse.csr_array, x: Vector) -> Vector:
        y: Vector = step @ x
        for _ in range(self.hops - 1):
            y = step @ (x + self.discount * y)
        y -= self.diagonal * x
        return y


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Values of a linear system, and the number of iterations (0 for a direct solve)."""

    values: Vector
    iterations: int


def normalise(
    weights: Matrix | sparse.csr_array, *, floor: float = 0.0, isolated: Literal["refuse", "keep"] = "refuse"
) -> sparse.csr_array:
    """W̃: each row of `weights` scaled to sum to one, each existing edge at least `floor`.

    W̃_ij = max(floor, c_i W_ij) on the support of row i, with c_i such that the row sums to one ([MPPFL] 2.3,
    footnote 2). A row without an edge raises `IsolatedDevice`, or stays zero when `isolated` is "keep".

    Parameters
    ----------
    weights : shape (n, n), non-negative, zero diagonal; dense or sparse.
    floor : w_min in [0, 1]; floor × degree must not exceed one.
    """
    graph = _checked(weights)
    if not 0.0 <= floor <= 1.0:
        raise InvalidInfluence(f"floor must lie in [0, 1], got {floor}")
    degree = np.diff(graph.indptr)
    if isolated == "refuse" and (alone := np.flatnonzero(degree == 0)).size:
        raise IsolatedDevice(
            f"device {alone[0]} has no incoming influence ({alone.size} such); give it an edge or leave it out"
        )
    if floor * degree.max(initial=0) > 1.0 + _ROUNDING:
        row = int(np.argmax(degree))
        raise InvalidInfluence(f"floor {floor} × {degree[row]} edges of device {row} exceeds 1; lower the floor")
    rows = np.repeat(np.arange(graph.shape[0]), degree)
    graph.data = _raised(graph.data, rows, graph.shape[0], floor)
    return graph


def _raised(weight: Vector, rows: NDArray[np.int64], n: int, floor: float) -> Vector:
    """max(floor, c_i w), where c_i follows from growing the set of entries at the floor."""
    low = np.zeros(weight.size, dtype=bool)
    while True:
        free = np.bincount(rows, np.where(low, 0.0, weight), n)
        room = 1.0 - floor * np.bincount(rows, low, n)
        scale = np.divide(room, free, out=np.zeros(n), where=free > np.finfo(np.float64).tiny)
        scaled: Vector = np.where(low, floor, scale[rows] * weight)
        fallen = ~low & (scaled < floor * (1.0 - _ROUNDING))
        if not fallen.any():
            return scaled
        low |= fallen


def _checked(weights: Matrix | sparse.csr_array) -> sparse.csr_array:
    if isinstance(weights, np.ndarray) and weights.ndim != 2:
        raise InvalidInfluence(f"influence must be a matrix, got {weights.ndim} dimension(s)")
    graph: Any = sparse.csr_array(weights, copy=True).astype(np.float64)
    if graph.shape[0] != graph.shape[1] or graph.shape[0] == 0:
        raise InvalidInfluence(f"influence must be square with at least one device, got {graph.shape}")
    if not np.isfinite(graph.data).all():
        raise InvalidInfluence("influence holds a value that is not finite")
    if (graph.data < 0).any():
        raise InvalidInfluence(f"influence must not be negative, got {graph.data.min()}")
    if graph.diagonal().any():
        raise InvalidInfluence(f"device {int(np.argmax(graph.diagonal() > 0))} influences itself; set W[i, i] to 0")
    graph.sum_duplicates()
    graph.eliminate_zeros()
    checked: sparse.csr_array = graph
    return checked


def leakage(
    weights: Matrix | sparse.csr_array,
    *,
    hops: int = 5,
    discount: float = 0.5,
    floor: float = 0.0,
    isolated: Literal["refuse", "keep"] = "refuse",
    diagonal_hops: int | None = None,
    dense_limit: int = DENSE_LIMIT,
) -> Leakage:
    """Build Σ of the social graph `weights`.

    `diagonal_hops` below `hops` leaves the longest return walks out of the diagonal (weight λ^(k−1) each), for graphs
    with large hubs, where the exact diagonal costs too much; it has no effect on the dense path.
    """
    if hops < 1:
        raise InvalidInfluence(f"hops must be at least 1, got {hops}")
    if not 0.0 < discount < 1.0:
        raise InvalidInfluence(f"discount must lie strictly between 0 and 1, got {discount}")
    forward = normalise(weights, floor=floor, isolated=isolated)
    backward = sparse.csr_array(forward.T)
    if forward.shape[0] <= dense_limit:
        matrix = _dense(forward, hops, discount)
        diagonal = matrix.diagonal().copy()
        np.fill_diagonal(matrix, 0.0)
        return Leakage(
            forward=forward,
            backward=backward,
            hops=hops,
            discount=discount,
            diagonal=diagonal,
            diagonal_hops=hops,
            matrix=matrix,
        )
    counted = hops if diagonal_hops is None else min(diagonal_hops, hops)
    diagonal = return_diagonal(forward, backward, counted, discount)
    return Leakage(
        forward=forward,
        backward=backward,
        hops=hops,
        discount=discount,
        diagonal=diagonal,
        diagonal_hops=counted,
        matrix=None,
    )


def _dense(forward: sparse.csr_array, hops: int, discount: float) -> Matrix:
    """Σ before its diagonal is zeroed; products keep W̃ sparse unless it is nearly full."""
    step: Any = forward if forward.nnz < 0.05 * forward.shape[0] ** 2 else forward.toarray()
    start = forward.toarray()
    matrix = start.copy()
    for _ in range(hops - 1):
        matrix = start + discount * (step @ matrix)
    return matrix


def return_diagonal(forward: sparse.csr_array, backward: sparse.csr_array, hops: int, discount: float) -> Vector:
    """diag(Σ_k λ^(k−1) W̃^k) exactly, device by device, in O(n) memory."""
    from services.pricing.domain.influence_kernels import meet_in_the_middle  # numba is slow to import

    out = np.zeros(forward.shape[0])
    meet_in_the_middle(
        (forward.indptr, forward.indices, forward.data),
        (backward.indptr, backward.indices, backward.data),
        hops,
        discount,
        out,
    )
    return out


def solve(operator: Leakage, risk_weight: float, right: Vector, *, transposed: bool = False) -> Solution:
    """y with (I + αΣ)y = right, or (I + αΣᵀ)y = right.

    Direct when Σ is dense. Otherwise y ← right − αΣy, which contracts by αS per step in the max norm (the transposed
    one in the sum norm); GMRES when αS ≥ 1, where the iteration need not converge.
    """
    n = operator.devices
    if operator.matrix is not None:
        full = np.eye(n) + risk_weight * (operator.matrix.T if transposed else operator.matrix)
        try:
            return Solution(np.asarray(np.linalg.solve(full, right), dtype=np.float64), 0)
        except np.linalg.LinAlgError as error:
            raise InvalidInfluence(
                f"I + {risk_weight}Σ is singular: the budgets are not determined; change risk_weight slightly"
            ) from error
    product = operator.apply_transposed if transposed else operator.apply
    if risk_weight * operator.row_sum_limit >= 1.0:
        return _krylov(n, lambda y: y + risk_weight * product(y), right)
    y = right
    # Successive differences shrink by αS, so the error left is below step·αS/(1−αS); the floor is rounding itself.
    target = 1e-15 * float(np.abs(right).max(initial=0.0))
    iterations, step = 0, np.inf
    while step > target and iterations < _SOLVE_STEPS:
        y, previous = right - risk_weight * product(y), y
        step = float(np.abs(y - previous).max(initial=0.0))
        iterations += 1
    return Solution(y, iterations)


def _krylov(n: int, product: Any, right: Vector) -> Solution:
    steps = 0

    def count(_: Any) -> None:
        nonlocal steps
        steps += 1

    operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
    y, code = gmres(operator, right, rtol=1e-13, restart=60, maxiter=20, callback=count, callback_type="pr_norm")
    if code != 0:
        raise InvalidInfluence(f"I + αΣ could not be solved in {steps} GMRES steps; lower risk_weight")
    return Solution(np.asarray(y), steps)
