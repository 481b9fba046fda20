"""The social graph as compressed sparse rows: pairs with positive direct trust, and its value. [SCFL] §III-B, "Social
Trust Model".

An edge exists wherever e > 0 (spec A4: a "friend" without a positive balance is not an edge). The graph is symmetric,
so every tie is stored twice, once in each end's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from services.kit.errors import InvalidInput

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


SYMMETRY_TOLERANCE = 1e-12
"""Tolerance for asymmetry by rounding; the upper half counts."""


class InvalidTrustGraph(InvalidInput):
    """The ties given do not form a symmetric graph with weights in [0, 1]."""


class UnknownNode(InvalidInput):
    """A device index outside the graph."""


class Paths(StrEnum):
    """Which path carries indirect trust: the best of the shortest, as in [SCFL] eq (2), or the best of all of up to
    three ties, which no new tie can lower (spec §1.3a)."""

    SHORTEST = "shortest"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class TrustGraph:
    """Symmetric weighted graph over devices 0..size−1 in CSR form.

    Row n is `indices[indptr[n]:indptr[n+1]]`, ascending, with direct trust e in (0, 1] at the same places of `values`.
    Build one with `from_ties` or `from_dense`, which check; the constructor does not.
    """

    indptr: Integers
    indices: Integers
    values: Floats
    paths: Paths = Paths.SHORTEST

    @property
    def size(self) -> int:
        """Number of devices, isolated ones included."""
        return len(self.indptr) - 1

    @property
    def ties(self) -> int:
        """Number of undirected edges."""
        return len(self.indices) // 2

    @property
    def degrees(self) -> Integers:
        """Number of neighbours of every device."""
        return np.diff(self.indptr)

    def neighbours(self, device: int) -> tuple[Integers, Floats]:
        """The device's neighbours, ascending, and its direct trust in each."""
        self.check(device)
        row = slice(self.indptr[device], self.indptr[device + 1])
        return self.indices[row], self.values[row]

    def direct(self, a: int, b: int) -> float:
        """e(a, b); 0 without an edge, and for a device with itself."""
        self.check(b)
        others, values = self.neighbours(a)
        place = int(np.searchsorted(others, b))
        return float(values[place]) if place < len(others) and others[place] == b else 0.0

    def edges(self) -> Iterator[tuple[int, int, float]]:
        """Yield every tie once, as (a, b, e) with a < b, in ascending order."""
        rows = np.repeat(np.arange(self.size), self.degrees)
        once = rows < self.indices
        return zip(rows[once].tolist(), self.indices[once].tolist(), self.values[once].tolist(), strict=True)

    def check(self, *devices: int) -> None:
        """Raise `UnknownNode` unless every device is one of 0..size−1."""
        for device in devices:
            if not 0 <= device < self.size:
                raise UnknownNode(f"device index {device} is outside this graph of {self.size}; use 0..{self.size - 1}")

    @classmethod
    def from_ties(cls, size: int, a: npt.ArrayLike, b: npt.ArrayLike, values: npt.ArrayLike) -> TrustGraph:
        """Build the graph of `size` devices with ties (a[k], b[k], values[k]), each given once in either direction.

        Ties with value 0 are dropped. A tie of a device with itself, a tie given twice, an index outside
        0..size−1 or a value outside [0, 1] raises `InvalidTrustGraph`.
        """
        first, second = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        weights = np.asarray(values, dtype=np.float64)
        _check_ties(size, first, second, weights)
        retained = weights > 0
        first, second, weights = first[retained], second[retained], weights[retained]
        rows, columns = np.concatenate((first, second)), np.concatenate((second, first))
        order = np.lexsort((columns, rows))
        indptr = np.zeros(size + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows, minlength=size), out=indptr[1:])
        return cls(indptr, columns[order], np.concatenate((weights, weights))[order])

    @classmethod
    def from_dense(cls, direct: npt.ArrayLike) -> TrustGraph:
        """Build the graph of a symmetric n×n matrix of direct trust with entries in [0, 1]; the diagonal is ignored."""
        matrix = check_direct(direct)
        a, b = np.nonzero(np.triu(matrix, k=1))
        return cls.from_ties(len(matrix), a, b, matrix[a, b])


def check_direct(direct: npt.ArrayLike) -> Floats:
    """Return `direct` as a square symmetric float array with entries in [0, 1], or raise `InvalidTrustGraph`."""
    try:
        matrix = np.asarray(direct, dtype=np.float64)
    except ValueError as error:
        raise InvalidTrustGraph("direct must be a square matrix, but its rows have different lengths") from error
    if matrix.size == 0:
        return np.zeros((0, 0))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InvalidTrustGraph(f"direct must be a square matrix, got shape {'×'.join(map(str, matrix.shape))}")
    bad = np.argwhere(~((matrix >= 0) & (matrix <= 1)))
    if len(bad):
        i, j = bad[0]
        raise InvalidTrustGraph(f"direct[{i}][{j}] = {matrix[i, j]} must lie in [0, 1]")
    skew = np.argwhere(np.abs(matrix - matrix.T) > SYMMETRY_TOLERANCE)
    if len(skew):
        i, j = skew[0]
        raise InvalidTrustGraph(
            f"direct must be symmetric: direct[{i}][{j}] = {matrix[i, j]} but direct[{j}][{i}] = {matrix[j, i]}"
        )
    return matrix


def _check_ties(size: int, a: Integers, b: Integers, values: Floats) -> None:
    if size < 0 or a.ndim != 1 or not a.shape == b.shape == values.shape:
        raise InvalidTrustGraph(
            f"ties need size ≥ 0 and three lists of one length, got {size}, {a.shape}, {b.shape}, {values.shape}"
        )
    low, high = np.minimum(a, b), np.maximum(a, b)
    wrong = (low < 0) | (high >= size) | (a == b) | ~((values >= 0) & (values <= 1))
    if wrong.any():
        k = int(np.argmax(wrong))
        raise InvalidTrustGraph(
            f"tie {k} = ({a[k]}, {b[k]}, {values[k]}) must join two different devices of 0..{size - 1} "
            "with a value in [0, 1]"
        )
    keys, counts = np.unique(low * size + high, return_counts=True)
    if len(keys) < len(a):
        twice = int(keys[np.argmax(counts > 1)])
        raise InvalidTrustGraph(f"tie ({twice // size}, {twice % size}) is given more than once; give each tie once")
