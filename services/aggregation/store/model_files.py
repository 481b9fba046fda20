"""Models, updates and shares of sums as they lie in the blob store."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from coterie.records.enums import Form
from services.aggregation.domain.accumulator import WINDOW, Accumulator
from services.aggregation.domain.layout import DTYPES, PREFIX_BYTES, Layout, header_length, parse
from services.aggregation.domain.records import Delivery
from services.aggregation.errors import BadModel, BadUpdate
from services.kit.database.blobs import BlobStore
from services.kit.errors import InvalidInput


class ModelFiles:
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

    async def ahead(self, delivery: Delivery) -> memoryview | None:
        """A small update of a far store, fetched before it is folded; None where folding reads it."""
        if self.blobs.is_near or delivery.form is Form.REPORT or not 0 < delivery.size_bytes <= UpdateReader.SMALL:
            return None
        return await self.blobs.fetch(delivery.digest, delivery.size_bytes)

    def check_finite(self, digest: str, layout: Layout) -> None:
        """Raises BadModel where a tensor holds NaN or infinity, which would spoil round one; call from a worker."""
        for tensor in layout.tensors:
            dtype = DTYPES[tensor.dtype]
            step = WINDOW * dtype.itemsize
            for start in range(tensor.start, tensor.stop, step):
                values = np.frombuffer(self.blobs.read(digest, start, min(step, tensor.stop - start)), dtype)
                if not np.isfinite(values).all():
                    raise BadModel(
                        f"tensor {tensor.name!r} holds NaN or infinity; a task cannot start from it: train or "
                        "initialise the model again, or leave the tensor out"
                    )

    def header(self, digest: str, layout: Layout) -> bytes:
        """Everything before a stored file's first tensor."""
        return bytes(self.blobs.read(digest, 0, layout.header_bytes))


COMMON_BYTES = 16 << 10
"""Headers up to this are remembered: all honest updates of a round have the same one."""


@lru_cache(maxsize=256)
def _parsed(header: bytes, total_bytes: int) -> Layout:
    return parse(header, total_bytes)


class StoredFile:
    """Reads a stored update; one that fits a single read is read once."""

    SMALL = 4 << 20

    def __init__(self, blobs: BlobStore, digest: str, size_bytes: int, whole: memoryview | None = None) -> None:
        """`whole` is the update, where it was fetched ahead."""
        self._blobs, self._digest, self._size = blobs, digest, size_bytes
        self._whole = whole
        if whole is None and self._size <= self.SMALL:
            self._whole = blobs.read(self._digest, 0, self._size)

    def layout(self) -> Layout:
        """Return the update's layout; raise BadUpdate when it is not a valid safetensors file."""
        try:
            length = header_length(bytes(self(0, min(PREFIX_BYTES, self._size))), self._size)
            header = bytes(self(PREFIX_BYTES, length))
            return (_parsed if length <= COMMON_BYTES else parse)(header, self._size)
        except InvalidInput as error:
            raise BadUpdate(f"the update is not a sound safetensors file: {error.message}") from error

    def __call__(self, start: int, length: int) -> memoryview:
        if self._whole is not None:
            return self._whole[start : start + length]
        return self._blobs.read(self._digest, start, length)


class UpdateReader(StoredFile):
    """Reads what a delivery brought."""

    def __init__(self, blobs: BlobStore, delivery: Delivery, whole: memoryview | None = None) -> None:
        super().__init__(blobs, delivery.digest, delivery.size_bytes, whole)


PARTIAL_PREFIX_BYTES = 8
"""What comes before the numbers of a stored sum: their number."""


def write_partial(total: Accumulator) -> Iterator[bytes]:
    """A sum as bytes for another replica: little-endian int64, a window at a time, after their number."""
    yield struct.pack("<q", total.elements)
    for piece in total.pieces():
        yield piece.astype("<i8").tobytes()


def read_partial(blobs: BlobStore, digest: str) -> Iterator[npt.NDArray[np.int64]]:
    """The reverse of `write_partial`."""
    (elements,) = struct.unpack("<q", blobs.read(digest, 0, 8))
    for start in range(0, elements, WINDOW):
        count = min(WINDOW, elements - start)
        yield np.frombuffer(blobs.read(digest, 8 + start * 8, count * 8), "<i8").astype(np.int64)
