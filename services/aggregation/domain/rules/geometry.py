"""Distances between updates, and between updates and a mixture of them, without holding the updates.

Everything that krum, nearest-neighbour mixing, the geometric median and clipping ask of the updates is in their n × n
matrix of inner products, summed over the columns a chunk at a time. Mixing is linear, so the products of mixed updates
follow from those of the updates themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.rules.rows import Matrix, Rows, Vector, windows


@dataclass(frozen=True, slots=True)
class Gram:
    """Inner products of points, measured from some origin: from `origin` where given, else from their medians.

    The medians keep the products as small as the points are spread out, so that little is lost when products are
    subtracted, and a few updates far away cannot change that.
    """

    products: Matrix

    @classmethod
    def of(cls, rows: Rows, origin: Vector | None) -> Gram:
        """One pass over the rows; n²·d multiplications."""
        products = np.zeros((rows.count, rows.count))
        middle = rows.count // 2
        for start, stop in windows(rows):
            values = rows.read(start, stop)
            values -= np.partition(values, middle, axis=0)[middle] if origin is None else origin[start:stop]
            products += values @ values.T
        return cls(products)

    def mixed(self, matrix: Matrix) -> Gram:
        """Products of the mixtures `matrix` (rows sum to 1) makes of the points."""
        products = matrix @ self.products @ matrix.T
        return Gram((products + products.T) / 2)

    def squared_distances(self) -> Matrix:
        """Between every two points; symmetric, 0 on the diagonal."""
        norms = np.diagonal(self.products)
        squared = np.maximum(norms[:, None] + norms - 2 * self.products, 0.0)
        np.fill_diagonal(squared, 0.0)
        return squared

    def squared_distances_to(self, shares: Vector) -> Vector:
        """From every point to Σ shares·point, both measured from the origin."""
        towards = self.products @ shares
        return np.maximum(np.diagonal(self.products) - 2 * towards + shares @ towards, 0.0)

    def coordinates(self) -> Matrix:
        """Points with these products, in as few dimensions as they have."""
        values, vectors = np.linalg.eigh(self.products)
        retained = values > 1e-14 * max(float(values[-1]), 0.0)
        coordinates: Matrix = vectors[:, retained] * np.sqrt(values[retained])
        return coordinates


class Cloud:
    """The updates, or their mixtures, as a rule sees them.

    `given` is the devices' own order; `labels` are equal for equal points.
    """

    def __init__(
        self,
        rows: Rows,
        weights: Vector,
        given: Sequence[int],
        *,
        origin: Vector | None = None,
        mixture: Matrix | None = None,
        gram: Gram | None = None,
    ) -> None:
        self.rows, self.weights, self.given = rows, weights, np.asarray(given)
        self.mixture = mixture
        self._origin, self._gram = origin, gram

    @property
    def count(self) -> int:
        """How many points."""
        return len(self.weights)

    @property
    def labels(self) -> list[bytes]:
        """Equal for equal points."""
        return list(self.rows.keys) if self.mixture is None else [row.tobytes() for row in self.mixture]

    @property
    def precedence(self) -> npt.NDArray[np.int64]:
        """The devices' order, by which ties are broken; equal points come as early as the first of them.

        Which of two equal points is taken shows in no device and must not show in the bits either: `lexsort` leaves
        them in the rows' own order.
        """
        first: dict[bytes, int] = {}
        labels = self.labels
        for label, place in zip(labels, self.given.tolist(), strict=True):
            first[label] = min(place, first.get(label, place))
        return np.array([first[label] for label in labels])

    @cached_property
    def gram(self) -> Gram:
        """Inner products of the points."""
        plain = self._gram or Gram.of(self.rows, self._origin)
        return plain if self.mixture is None else plain.mixed(self.mixture)

    def coordinates(self) -> Matrix:
        """The points themselves, turned into as few dimensions as are worth it."""
        if self.mixture is None and self.rows.elements <= self.count:
            return self.rows.read(0, self.rows.elements)
        return self.gram.coordinates()

    def squared_distances_to(self, shares: Vector) -> Vector:
        """From every point to origin + Σ shares·(point − origin): by products where known, else in one pass."""
        if self._gram is not None or self.mixture is not None:
            return self.gram.squared_distances_to(shares)
        assert self._origin is not None
        squared = np.zeros(self.count)
        for start, stop in windows(self.rows):
            values = self.rows.read(start, stop)
            values -= self._origin[start:stop]
            values -= shares @ values
            squared += np.einsum("ij,ij->i", values, values)
        return squared
