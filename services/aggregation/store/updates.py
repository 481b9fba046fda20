"""A round's stored updates as rows, read a window of columns at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie.records.enums import Form
from services.aggregation.domain.layout import Layout, Tensor
from services.aggregation.domain.model_steps import read_values
from services.aggregation.domain.records import Participation
from services.aggregation.store.model_files import ModelFiles
from services.kit.database.blobs import BlobStore

Matrix = npt.NDArray[np.float64]
WINDOW_CELLS = 1 << 24
"""Numbers held at a time, of all updates together: 128 MiB."""


@dataclass(frozen=True, slots=True)
class StoredUpdate:
    """Where an update lies; `divisor` makes a mean of the sum a cluster's head hands in, and discounts a stale one."""

    digest: str
    divisor: float
    tensors: dict[str, Tensor]

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.digest) + struct.pack("<d", self.divisor)

    @classmethod
    def of(cls, model_files: ModelFiles, participation: Participation, discount: float = 1.0) -> StoredUpdate:
        """A delivered update, whose file was found sound when it was taken."""
        layout = model_files.layout(participation.digest, participation.payload_bytes)
        divisor = participation.weight if participation.form is Form.SUM else 1.0
        return cls(participation.digest, divisor / discount, {tensor.name: tensor for tensor in layout.tensors})


class StoredUpdates:
    """`Rows` over blobs, one row per update, columns in the order of the model's tensors."""

    def __init__(self, blobs: BlobStore, model: Layout, updates: Sequence[StoredUpdate]) -> None:
        self._blobs, self._model, self._updates = blobs, model, tuple(updates)
        self._start, self._held = 0, np.zeros((len(updates), 0))

    @property
    def count(self) -> int:
        return len(self._updates)

    @property
    def elements(self) -> int:
        return self._model.elements

    @property
    def keys(self) -> list[bytes]:
        return [update.key for update in self._updates]

    def only(self, which: Sequence[int]) -> StoredUpdates | ChosenUpdates:
        """See `Rows`. Where one window holds all updates the store is read only once."""
        if self.count * self.elements <= WINDOW_CELLS:
            return ChosenUpdates(self, tuple(which))
        return StoredUpdates(self._blobs, self._model, [self._updates[i] for i in which])

    def read(self, start: int, stop: int) -> Matrix:
        """See `Rows`. Reading on within the window that is held costs no further look at the store."""
        return self.window(start, stop).copy()

    def window(self, start: int, stop: int) -> Matrix:
        """Columns [start, stop) of every row as they are held, not to be written to."""
        if not self._start <= start <= stop <= self._start + self._held.shape[1]:
            width = max(stop - start, WINDOW_CELLS // max(self.count, 1))
            self._start, self._held = start, self._load(start, min(start + width, self.elements))
        return self._held[:, start - self._start : stop - self._start]

    def _load(self, start: int, stop: int) -> Matrix:
        self._held = np.zeros((self.count, 0))  # given back before the next window is made
        values = np.empty((self.count, stop - start))
        for row, update in zip(values, self._updates, strict=True):
            for tensor in self._model.tensors:
                low, high = max(start, tensor.offset), min(stop, tensor.offset + tensor.elements)
                if low < high:
                    row[low - start : high - start] = self._piece(update, tensor, low, high)
        return values

    def _piece(self, update: StoredUpdate, tensor: Tensor, low: int, high: int) -> Matrix:
        def read(place: int, length: int) -> memoryview:
            return self._blobs.read(update.digest, place, length)

        own = update.tensors[tensor.name]
        return read_values(own, read, low - tensor.offset, high - tensor.offset) / update.divisor


@dataclass(frozen=True, slots=True)
class ChosenUpdates:
    """`Rows` of updates that others hold."""

    held: StoredUpdates
    which: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.which)

    @property
    def elements(self) -> int:
        return self.held.elements

    @property
    def keys(self) -> list[bytes]:
        keys = self.held.keys
        return [keys[i] for i in self.which]

    def only(self, which: Sequence[int]) -> ChosenUpdates:
        """See `Rows`."""
        return ChosenUpdates(self.held, tuple(self.which[i] for i in which))

    def read(self, start: int, stop: int) -> Matrix:
        """See `Rows`."""
        return self.held.window(start, stop)[list(self.which)]
