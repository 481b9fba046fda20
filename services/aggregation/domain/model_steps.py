"""New model files from old ones: a model moves by a change that comes in chunks of any size.

Nothing is held beyond a window: a model's bytes and an optimiser's state are read where they lie, and what is written
comes out as pieces of a file.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from coterie.learning.models import is_statistic
from services.aggregation.domain.accumulator import Read
from services.aggregation.domain.layout import DTYPES, PREFIX_BYTES, Layout, Tensor
from services.aggregation.domain.rules.optimisers import Optimiser, State, first_state
from services.aggregation.errors import BadUpdates

Vector = npt.NDArray[np.float64]
WINDOW = 1 << 20
"""Elements worked on at a time."""
StateReader = Callable[[int, int], State]
"""`read(start, stop)`: those elements of an optimiser's state."""


class Flow:
    """Regroup chunks of any size into windows of equal size."""

    def __init__(self, chunks: Iterable[Vector]) -> None:
        self._chunks = iter(chunks)
        self._left: Vector = np.zeros(0)

    def take(self, count: int) -> Vector:
        """The next `count` numbers."""
        pieces, wanted = [self._left[:count]], count - len(self._left)
        self._left = self._left[count:]
        while wanted > 0:
            chunk = next(self._chunks)
            pieces.append(chunk[:wanted])
            self._left = chunk[wanted:]
            wanted -= len(chunk)
        return np.concatenate(pieces)


def add_change(layout: Layout, header: bytes, read_model: Read, change: Iterable[Vector]) -> Iterator[bytes]:
    """The file of the model plus the change; `header` is everything before its first tensor."""
    flow = Flow(change)
    return _rewrite(layout, header, read_model, lambda model, start, stop: model + flow.take(stop - start))


def advance(
    layout: Layout,
    header: bytes,
    read_model: Read,
    optimiser: Optimiser,
    state: StateReader,
    change: Callable[[], Iterable[Vector]],
) -> Iterator[bytes]:
    """The file of the model after an optimiser's step; `state` is the one after that step.

    Running statistics are values that were measured: they take the mean change as it is, whatever the optimiser. The
    change is gone through again only where the model has some.
    """
    measured = [(t.offset, t.offset + t.elements) for t in layout.tensors if is_statistic(t.name)]
    flow = Flow(change()) if measured else None

    def move(model: Vector, start: int, stop: int) -> Vector:
        moves = None if flow is None else flow.take(stop - start)
        if moves is not None and any(first <= start < last for first, last in measured):
            return model + moves
        return optimiser.advance(model, state(start, stop))

    return _rewrite(layout, header, read_model, move)


def _rewrite(
    layout: Layout, header: bytes, read_model: Read, move: Callable[[Vector, int, int], Vector]
) -> Iterator[bytes]:
    yield header
    for tensor in layout.tensors:
        for start, stop in _windows(tensor.elements):
            values = read_values(tensor, read_model, start, stop)
            with np.errstate(over="ignore", invalid="ignore"):
                moved = move(values, tensor.offset + start, tensor.offset + stop).astype(DTYPES[tensor.dtype])
            if not np.isfinite(moved).all():
                raise BadUpdates(
                    f"the step leaves the range of {tensor.dtype} in tensor {tensor.name!r}; lower the rule's "
                    "learning rate, or clip the updates"
                )
            yield moved.tobytes()


def read_values(tensor: Tensor, read: Read, start: int, stop: int) -> Vector:
    """Elements [start, stop) of a stored tensor."""
    dtype = DTYPES[tensor.dtype]
    stored = np.frombuffer(read(tensor.start + start * dtype.itemsize, (stop - start) * dtype.itemsize), dtype)
    return stored.astype(np.float64)


def remember(
    optimiser: Optimiser, elements: int, state: StateReader, change: Callable[[], Iterable[Vector]]
) -> Iterator[bytes]:
    """The file of an optimiser's state after a step: one flat F64 tensor for each of its vectors.

    The change is gone through once for each, so that no vector waits in memory for the one before it.
    """
    yield _state_header(optimiser, elements)
    for name in optimiser.memory:
        flow = Flow(change())
        for start, stop in _windows(elements):
            after = optimiser.remember(state(start, stop), flow.take(stop - start))
            yield after[name].astype("<f8").tobytes()


def first_reader(optimiser: Optimiser) -> StateReader:
    """The state before the first step."""
    return lambda start, stop: first_state(optimiser, stop - start)


def state_reader(layout: Layout, read: Read) -> StateReader:
    """Reads a stored state."""
    return lambda start, stop: {tensor.name: read_values(tensor, read, start, stop) for tensor in layout.tensors}


def _state_header(optimiser: Optimiser, elements: int) -> bytes:
    size = elements * 8
    entries = {
        name: {"dtype": "F64", "shape": [elements], "data_offsets": [place * size, (place + 1) * size]}
        for place, name in enumerate(optimiser.memory)
    }
    text = json.dumps(entries).encode()
    # The format wants the tensors to begin at a multiple of eight bytes.
    text += b" " * (-(len(text) + PREFIX_BYTES) % 8)
    return struct.pack("<Q", len(text)) + text


def _windows(elements: int) -> list[tuple[int, int]]:
    return [(start, min(start + WINDOW, elements)) for start in range(0, elements, WINDOW)]
