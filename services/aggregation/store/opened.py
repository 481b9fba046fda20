"""Opened sums as they lie in the blob store: whole numbers of one cohort each, read as means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.accumulator import WINDOW, weight_of
from services.aggregation.store.model_files import PARTIAL_PREFIX_BYTES
from services.kit.database.blobs import BlobStore

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class OpenedSum:
    """Σ weight·change·2^scale over the survivors of one cohort, and Σ weight in units.

    `factor` is what its weights were divided by, so that sums of different grids can be added.
    """

    cohort: int
    digest: str
    elements: int
    scale: int
    weight_units: int
    factor: float = 1.0

    @property
    def weight(self) -> float:
        return weight_of(self.weight_units) * self.factor


class OpenedSums:
    """Opened sums, each a row that holds its mean; see `Rows`."""

    def __init__(self, blobs: BlobStore, opened: Sequence[OpenedSum]) -> None:
        self._blobs, self._opened = blobs, list(opened)

    @property
    def count(self) -> int:
        return len(self._opened)

    @property
    def elements(self) -> int:
        return self._opened[0].elements

    @property
    def keys(self) -> list[bytes]:
        return [bytes.fromhex(item.digest) for item in self._opened]

    def only(self, which: Sequence[int]) -> OpenedSums:
        """See `Rows`."""
        return OpenedSums(self._blobs, [self._opened[at] for at in which])

    def read(self, start: int, stop: int) -> Matrix:
        """See `Rows`."""
        return np.stack([self._values(item, start, stop) / item.weight for item in self._opened])

    def means(self) -> Iterator[Matrix]:
        """The mean over all devices of all sums, a window at a time: for one sum, to the bit that of a clear one."""
        for start in range(0, self.elements, WINDOW):
            yield self.mean(start, min(start + WINDOW, self.elements))

    def mean(self, start: int, stop: int) -> Matrix:
        """Some elements of that mean."""
        total = self._total(start, stop)
        total /= self._weight
        return total

    @property
    def _weight(self) -> float:
        if all(item.factor == 1.0 for item in self._opened):
            return weight_of(sum(item.weight_units for item in self._opened))  # to the bit that of a clear sum
        return math.fsum(item.weight for item in self._opened)

    def first(self) -> float:
        """The first element of all sums together."""
        return float(self._total(0, 1)[0])

    def _total(self, start: int, stop: int) -> Matrix:
        total = self._values(self._opened[0], start, stop)
        for other in self._opened[1:]:
            total += self._values(other, start, stop)
        return total

    def _values(self, opened: OpenedSum, start: int, stop: int) -> Matrix:
        read = self._blobs.read(opened.digest, PARTIAL_PREFIX_BYTES + start * 8, (stop - start) * 8)
        values: Matrix = np.frombuffer(read, "<i8") / (2.0**opened.scale / opened.factor)
        return values
