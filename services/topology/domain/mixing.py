"""How fast a communication topology mixes: the lazy Metropolis matrix, its spectral gap and its hitting times.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, Definitions 1, 5 and 7.

Symbols: V devices, A the communication matrix (4), δ its spectral gap, m_ij the expected number of steps a walk with
transition matrix A needs from i to j (12), H the largest of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from services.kit.errors import InvalidInput

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

STOCHASTIC_TOLERANCE = 1e-9


class NotATopology(InvalidInput):
    """The adjacency is not a simple undirected graph, or the matrix is not a mixing matrix."""


class NotConnected(InvalidInput):
    """Some device can never be reached from another, so hitting times are infinite."""


def lazy_metropolis(adjacency: NDArray[np.bool_]) -> Floats:
    """The communication matrix of a topology.

    [BETTA] (4): a_ij = 1/(2 max(deg i, deg j)) on links, a_ii = 1 − Σ_k a_ik, else 0. The matrix is symmetric, doubly
    stochastic and, because a_ii ≥ 1/2, positive semidefinite.

    Parameters
    ----------
    adjacency : (V, V) symmetric booleans with an empty diagonal.

    Returns
    -------
    (V, V) floats in [0, 1].
    """
    links = _simple_graph(adjacency)
    degree = links.sum(axis=1)
    larger = np.maximum(np.maximum.outer(degree, degree), 1)
    mixing = np.where(links, 1.0 / (2.0 * larger), 0.0)
    np.fill_diagonal(mixing, 1.0 - mixing.sum(axis=1))
    return mixing


def spectral_gap(mixing: Floats) -> float:
    """δ = 1 − λ₂ of a lazy mixing matrix ([BETTA] Definition 5); 1 for one device, 0 when not connected.

    λ₂ is the second largest eigenvalue; no absolute value is needed since a lazy matrix has none below zero.
    """
    matrix = _mixing_matrix(mixing)
    if len(matrix) == 1:
        return 1.0
    return float(max(0.0, 1.0 - np.linalg.eigvalsh(matrix)[-2]))


def hitting_times(mixing: Floats) -> Floats:
    """m_ij by solving (12) directly, one linear system per target; O(V⁴), the check on the closed form.

    [BETTA] (12): m_jj = 0, m_ij = 1 + Σ_{k≠j} a_ik m_kj. Row = from, column = to; not symmetric.
    """
    matrix = _mixing_matrix(mixing)
    _require_connected(matrix)
    count = len(matrix)
    times = np.zeros((count, count))
    for target in range(count):
        others = np.flatnonzero(np.arange(count) != target)
        system = np.eye(count - 1) - matrix[np.ix_(others, others)]
        times[others, target] = np.linalg.solve(system, np.ones(count - 1))
    return times


def hitting_times_closed_form(mixing: Floats) -> Floats:
    """m_ij = V (G_jj − G_ij) with G = (I − A)⁺, one inverse for all targets; O(V³).

    Holds because A is doubly stochastic, so the stationary law is uniform. G is taken as (I − A + J)⁻¹ − J with
    J = 1/V everywhere, which exists exactly when the topology is connected.
    """
    matrix = _mixing_matrix(mixing)
    _require_connected(matrix)
    count = len(matrix)
    inverse = fundamental_matrix(matrix)
    times = count * (np.diag(inverse)[None, :] - inverse)
    np.fill_diagonal(times, 0.0)
    return times


def fundamental_matrix(mixing: Floats) -> Floats:
    """G = (I − A)⁺ of a connected mixing matrix, symmetric with zero row sums."""
    count = len(mixing)
    uniform = np.full((count, count), 1.0 / count)
    inverse = np.linalg.inv(np.eye(count) - mixing + uniform) - uniform
    return np.asarray((inverse + inverse.T) / 2.0, dtype=np.float64)


def components(adjacency: NDArray[np.bool_]) -> list[list[int]]:
    """The connected parts, each ascending, ordered by their smallest device."""
    count, labels = connected_components(np.asarray(adjacency, dtype=bool), directed=False)
    parts = [np.flatnonzero(labels == label).tolist() for label in range(count)]
    return sorted(parts)


def _simple_graph(adjacency: NDArray[np.bool_]) -> Bools:
    links = np.asarray(adjacency, dtype=bool)
    if links.ndim != 2 or links.shape[0] != links.shape[1] or len(links) == 0:
        raise NotATopology(f"the adjacency has shape {links.shape}; give a square matrix of at least one device")
    if (links != links.T).any():
        row, column = np.argwhere(links != links.T)[0]
        raise NotATopology(f"link {row}–{column} exists in one direction only; links work both ways")
    if links.diagonal().any():
        raise NotATopology(f"device {int(np.argmax(links.diagonal()))} is linked to itself; leave the diagonal empty")
    return links


def _mixing_matrix(mixing: Floats) -> Floats:
    matrix = np.asarray(mixing, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) == 0:
        raise NotATopology(f"the mixing matrix has shape {matrix.shape}; give a square matrix of at least one device")
    if not np.isfinite(matrix).all() or (matrix < -STOCHASTIC_TOLERANCE).any():
        raise NotATopology("the mixing matrix has a negative or non-finite entry; mixing weights lie in [0, 1]")
    off_by = float(np.abs(matrix.sum(axis=1) - 1.0).max())
    skew = float(np.abs(matrix - matrix.T).max())
    if off_by > STOCHASTIC_TOLERANCE or skew > STOCHASTIC_TOLERANCE:
        raise NotATopology(
            f"the mixing matrix must be symmetric with rows that sum to 1; rows are off by up to {off_by:.3g}, "
            f"symmetry by {skew:.3g}"
        )
    return matrix


def _require_connected(mixing: Floats) -> None:
    parts = components(mixing > 0.0)
    if len(parts) > 1:
        raise NotConnected(f"the topology falls into {len(parts)} parts, {name_parts(parts)}; add links between them")


def name_parts(parts: list[list[int]], limit: int = 6) -> str:
    """The parts in words, shortened: `{0, 1} and {2}`."""
    shown = ["{" + ", ".join(map(str, part[:8])) + (", …" if len(part) > 8 else "") + "}" for part in parts[:limit]]
    more = f" and {len(parts) - limit} more" if len(parts) > limit else ""
    return (" and ".join(shown) if len(shown) <= 2 else ", ".join(shown)) + more
