"""Updates as rows that are read a few columns at a time, in an order that does not depend on who came first.

Floating-point sums depend on the order of their terms. So every rule works on the rows sorted by weight and content:
the same updates in another order are then the very same matrix, and give the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]

CELLS = 1 << 18
"""Numbers worked on at a time: rows × columns of a chunk."""
COLUMNS = 1 << 16
"""Most columns of a chunk."""


class Rows(Protocol):
    """Updates of several devices, one row each, all of the same length."""

    @property
    def count(self) -> int:
        """How many rows."""

    @property
    def elements(self) -> int:
        """How long a row is."""

    @property
    def keys(self) -> Sequence[bytes]:
        """Each row's content address: equal for equal rows, different for others."""

    def only(self, which: Sequence[int]) -> Rows:
        """These rows, in this order."""

    def read(self, start: int, stop: int) -> Matrix:
        """Columns [start, stop) of every row, finite numbers, as a new array."""


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """Rows held in memory."""

    values: Matrix
    keys: tuple[bytes, ...]

    @classmethod
    def of(cls, values: npt.ArrayLike) -> ArrayRows:
        """Rows of a matrix."""
        matrix = np.ascontiguousarray(values, np.float64)
        return cls(matrix, tuple(hashlib.sha256(row.tobytes()).digest() for row in matrix))

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def elements(self) -> int:
        return int(self.values.shape[1])

    def only(self, which: Sequence[int]) -> ArrayRows:
        return ArrayRows(self.values[list(which)], tuple(self.keys[i] for i in which))

    def read(self, start: int, stop: int) -> Matrix:
        return self.values[:, start:stop].copy()


def windows(rows: Rows) -> Iterator[tuple[int, int]]:
    """Bounds of the chunks in which rows are read: memory is a few times CELLS numbers, however many rows."""
    width = max(1, min(COLUMNS, CELLS // max(rows.count, 1)))
    for start in range(0, rows.elements, width):
        yield start, min(start + width, rows.elements)


def canonical_order(rows: Rows, weights: Vector) -> list[int]:
    """Rows by weight, then content. Rows equal in both are the same to every rule."""
    keys = rows.keys
    return sorted(range(rows.count), key=lambda i: (weights[i], keys[i]))
