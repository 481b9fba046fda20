"""Models, updates and shares of sums as they lie in the blob store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.accumulator import WINDOW, Accumulator
from services.aggregation.domain.layout import PREFIX_BYTES, Layout, header_length, parse
from services.aggregation.domain.records import Delivery
from services.aggregation.errors import BadUpdate
from services.kit.blobs import BlobStore
from services.kit.errors import InvalidInput


class Library:
    """Layouts of stored models, read once."""

    def __init__(self, blobs: BlobStore) -> None:
        self.blobs = blobs
        self._cached = lru_cache(maxsize=256)(self._read)

    def layout(self, digest: str, size_bytes: int) -> Layout:
        """Layout of a stored file; call from a worker thread."""
        return self._cached(digest, size_bytes)

    def _read(self, digest: str, size_bytes: int) -> Layout:
        prefix = bytes(self.blobs.read(digest, 0, min(PREFIX_BYTES, size_bytes)))
        length = header_length(prefix, size_bytes)
        return parse(bytes(self.blobs.read(digest, PREFIX_BYTES, length)), size_bytes)

    def header(self, digest: str, layout: Layout) -> bytes:
        """Everything before a stored file's first tensor."""
        return bytes(self.blobs.read(digest, 0, layout.header_bytes))


class UpdateReader:
    """Reads a stored update; one that fits a single read is read once."""

    SMALL = 4 << 20

    def __init__(self, blobs: BlobStore, delivery: Delivery) -> None:
        self._blobs, self._digest, self._size = blobs, delivery.digest, delivery.size_bytes
        self._whole = blobs.read(self._digest, 0, self._size) if self._size <= self.SMALL else None

    def layout(self) -> Layout:
        """Where the update's tensors lie; raises BadUpdate when it is no sound safetensors file."""
        try:
            length = header_length(bytes(self(0, min(PREFIX_BYTES, self._size))), self._size)
            return parse(bytes(self(PREFIX_BYTES, length)), self._size)
        except InvalidInput as error:
            raise BadUpdate(f"the update is not a sound safetensors file: {error.message}") from error

    def __call__(self, start: int, length: int) -> memoryview:
        if self._whole is not None:
            return self._whole[start : start + length]
        return self._blobs.read(self._digest, start, length)


def write_partial(total: Accumulator) -> Iterator[bytes]:
    """A sum as bytes for another replica: little-endian int64, a window at a time, after their number."""
    yield struct.pack("<q", total.layout.elements)
    for piece in total.pieces():
        yield piece.astype("<i8").tobytes()


def read_partial(blobs: BlobStore, digest: str) -> Iterator[npt.NDArray[np.int64]]:
    """The reverse of `write_partial`."""
    (elements,) = struct.unpack("<q", blobs.read(digest, 0, 8))
    for start in range(0, elements, WINDOW):
        count = min(WINDOW, elements - start)
        yield np.frombuffer(blobs.read(digest, 8 + start * 8, count * 8), "<i8").astype(np.int64)
