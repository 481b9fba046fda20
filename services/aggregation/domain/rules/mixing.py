"""What is done to updates before a rule sees them: nearest-neighbour mixing, or averaging in random buckets.

Y. Allouah, S. Farhadkhani, R. Guerraoui, N. Gupta, R. Pinot, J. Stephan, "Fixing by mixing: a recipe for optimal
Byzantine ML under heterogeneity", AISTATS 2023; S. P. Karimireddy, L. He, M. Jaggi, "Byzantine-robust learning on
heterogeneous datasets via bucketing", ICLR 2022.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.rules.rows import CELLS, Matrix, Rows, Vector


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Each update becomes the mean of its n − f nearest, itself included."""

    f: int

    def mixture(self, squared_distances: Matrix, weights: Vector, precedence: npt.NDArray[np.int64]) -> Matrix:
        """The matrix whose row i mixes update i: rows sum to 1. Of equally near ones the heavier, then the first."""
        n = len(weights)
        by_device = np.lexsort((precedence, -weights))
        near = squared_distances[:, by_device].copy()
        near[by_device, np.arange(n)] = -1.0
        chosen = by_device[np.argsort(near, axis=1, kind="stable")[:, : n - self.f]]
        mixture = np.zeros((n, n))
        np.put_along_axis(mixture, chosen, weights[chosen], axis=1)
        mixed: Matrix = mixture / mixture.sum(axis=1, keepdims=True)
        return mixed


@dataclass(frozen=True, slots=True)
class Bucketing:
    """Updates in random groups of `size`, the last perhaps smaller; each group's mean stands for it."""

    size: int
    seed: int = 0

    def buckets_of(self, devices: int) -> int:
        """Return the number of groups for a number of devices."""
        return -(-devices // self.size)

    def groups(self, devices: int) -> list[list[int]]:
        """Positions of the devices in each group."""
        shuffled = np.random.default_rng(self.seed).permutation(devices).tolist()
        return [shuffled[start : start + self.size] for start in range(0, devices, self.size)]


class BucketRows:
    """Means of groups of rows, as rows."""

    def __init__(self, rows: Rows, weights: Vector, groups: Sequence[Sequence[int]]) -> None:
        self._rows, self._weights = rows, weights
        # Within a group in the rows' own, canonical order.
        self._groups = [sorted(group) for group in groups]

    @property
    def count(self) -> int:
        return len(self._groups)

    @property
    def elements(self) -> int:
        return self._rows.elements

    @property
    def keys(self) -> list[bytes]:
        # Of content and weights alone, so that they do not depend on the order of devices.
        return [
            hashlib.sha256(b"".join(self._rows.keys[i] + self._weights[i].tobytes() for i in group)).digest()
            for group in self._groups
        ]

    @property
    def weights(self) -> Vector:
        """A bucket weighs as much as its members on average: without weights all weigh the same."""
        return np.array([self._weights[group].mean() for group in self._groups])

    def only(self, which: Sequence[int]) -> BucketRows:
        """See `Rows`."""
        chosen = [self._groups[i] for i in which]
        members = sorted(i for group in chosen for i in group)
        place = {member: i for i, member in enumerate(members)}
        groups = [[place[i] for i in group] for group in chosen]
        return BucketRows(self._rows.only(members), self._weights[members], groups)

    def read(self, start: int, stop: int) -> Matrix:
        """See `Rows`. All members are read, a part of the columns at a time where they are many."""
        width = max(1, CELLS // self._rows.count)
        pieces = [self._means(low, min(low + width, stop)) for low in range(start, stop, width)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)

    def _means(self, start: int, stop: int) -> Matrix:
        values = self._rows.read(start, stop)
        flat = [i for group in self._groups for i in group]
        starts = np.cumsum([0] + [len(group) for group in self._groups[:-1]])
        weights = self._weights[flat]
        sums = np.add.reduceat(values[flat] * weights[:, None], starts, axis=0)
        means: Matrix = sums / np.add.reduceat(weights, starts)[:, None]
        return means
