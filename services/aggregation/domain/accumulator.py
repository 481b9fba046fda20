"""A weighted average whose bits do not depend on the order, the grouping or the number of summands' arrivals.

Every term weight × value is rounded once to a multiple of 2^-scale and added as a 64-bit integer. Integer addition is
associative, commutative and invertible, so partial sums of several replicas merge exactly, a restart that folds the
same updates again finds the same bits, and a bad update is taken out again by subtracting what it added.

Rounding costs at most 2^-(scale+1) per term, so the mean is off by at most n·2^-(scale+1)/W for n updates of total
weight W; `choose_scale` makes that far smaller than a float32 can show.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import IO

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.layout import DTYPES, Layout, Tensor
from services.aggregation.errors import BadUpdate

Read = Callable[[int, int], "memoryview | bytes"]
"""`read(start, length)`: bytes of a stored file."""

MAX_MAGNITUDE = 4096.0
"""Largest |value| an update of the heaviest weight may hold."""
CHUNK = 1 << 15
"""Elements worked on at a time: their float64 and int64 forms stay in the processor's cache."""
WINDOW = 1 << 20
"""Elements mapped, or read from a blob, at a time."""
IN_MEMORY = 4 * WINDOW
"""Accumulators up to this many elements are arrays, larger ones nameless files mapped a window at a time."""
_UNIT = 1 << 40
"""Weights are kept in whole units of 2^-40."""
_SUM_BITS = 62
_TERM_BITS = 51
# Adding 1.5·2^52 to a double of magnitude at most 2^51 rounds it to the nearest whole number (ties to even) and leaves
# that number in the low bits of the result: a conversion to int64 that vectorises.
_MAGIC = 1.5 * 2.0**52
_MAGIC_BITS = np.float64(_MAGIC).view(np.int64)


def _term_bits(updates: int) -> int:
    """Bits a term may have so that `updates` of them stay within 64."""
    return min(_TERM_BITS, _SUM_BITS - math.ceil(math.log2(max(updates, 1))))


def choose_scale(updates: int, heaviest: float) -> int:
    """Bits after the point, for at most `updates` updates of weight at most `heaviest` each."""
    return _term_bits(updates) - math.ceil(math.log2(max(heaviest, 1e-6) * MAX_MAGNITUDE))


class Accumulator:
    """Σ weight·update of one model line in one round, exact in fixed point.

    `updates` bounds how many updates may be folded in: it keeps every sum within 64 bits. `elements` is how many
    numbers it has, `more` of them behind the model's.
    """

    def __init__(self, layout: Layout, scale: int, updates: int, more: int = 0) -> None:
        self.layout, self.elements = layout, layout.elements + more
        self.scale = scale
        self.weight_units = 0
        self._limit = 2.0 ** _term_bits(updates)
        self._cells = _Cells(self.elements)

    @property
    def weight(self) -> float:
        """Total weight folded in."""
        return weight_of(self.weight_units)

    def fold(self, layout: Layout, read: Read, weight: float, *, is_sum: bool = False, discount: float = 1.0) -> float:
        """Adds an update: `weight` × its tensors, or with `is_sum` the tensors as they are (a weighted sum); its norm.

        A `discount` below 1 makes its tensors smaller and its weight not: the mean moves less towards it.

        An update that does not fit, or holds NaN, infinity or values beyond the bound, raises BadUpdate and leaves
        the accumulator as it was, to the bit.
        """
        return self._take(layout, read, weight, discount if is_sum else weight * discount, sign=1)

    def _take(self, layout: Layout, read: Read, weight: float, factor: float, *, sign: int) -> float:
        reason = self.layout.fits(layout)
        if reason:
            raise BadUpdate(f"{reason}; send an update made from the round's own model")
        taken: list[tuple[Tensor, Tensor, list[int]]] = []
        squares = 0.0
        ours = {tensor.name: tensor for tensor in self.layout.tensors}
        for theirs in layout.tensors:
            whole = _windows(theirs.elements)
            passed, squared = self._add(ours[theirs.name], theirs, read, factor, whole, sign=sign)
            squares += squared
            taken.append((ours[theirs.name], theirs, passed))
            if passed != whole:
                for own, other, counts in taken if sign else ():
                    self._add(own, other, read, factor, counts, sign=-1)
                raise BadUpdate(
                    f"tensor {theirs.name!r} holds NaN, infinity or a value too large to average; "
                    "lower the learning rate or clip the update"
                )
        self.weight_units += sign * units(weight)
        return math.sqrt(squares) / (factor * 2.0**self.scale) if factor else 0.0

    def unfold(self, layout: Layout, read: Read, weight: float, *, is_sum: bool = False, discount: float = 1.0) -> None:
        """Takes an update out again that `fold` took in."""
        ours = {tensor.name: tensor for tensor in self.layout.tensors}
        for theirs in layout.tensors:
            factor = discount if is_sum else weight * discount
            self._add(ours[theirs.name], theirs, read, factor, _windows(theirs.elements), sign=-1)
        self.weight_units -= units(weight)

    def _add(
        self, own: Tensor, theirs: Tensor, read: Read, factor: float, counts: list[int], *, sign: int
    ) -> tuple[list[int], float]:
        """Adds (with sign −1 subtracts, with 0 merely looks at) the first `counts[w]` elements of each window.

        How many passed in each, and the sum of all terms' squares.

        A window ends before its first bad chunk, so an undo with what this returned repeats exactly the same chunks.
        Windows do not touch each other: large tensors are shared out over two threads.
        """

        def add(window: int) -> tuple[int, float]:
            return self._add_window(own, theirs, read, factor * 2.0**self.scale, window, counts[window], sign)

        run = map if len(counts) <= 2 else _threads().map
        added = list(run(add, range(len(counts))))
        return [passed for passed, _ in added], math.fsum(squared for _, squared in added)

    def _add_window(
        self, own: Tensor, theirs: Tensor, read: Read, scaling: float, window: int, count: int, sign: int
    ) -> tuple[int, float]:
        dtype, start, squares = DTYPES[theirs.dtype], window * WINDOW, 0.0
        scaled = np.empty(min(CHUNK, count))
        integers = scaled.view(np.int64)
        values = np.frombuffer(read(theirs.start + start * dtype.itemsize, count * dtype.itemsize), dtype)
        with self._cells.window(own.offset + start, own.offset + start + count) as cells:
            for low in range(0, count, CHUNK):
                piece, sums = values[low : low + CHUNK], cells[low : low + CHUNK]
                terms, whole = scaled[: len(piece)], integers[: len(piece)]
                np.multiply(piece, scaling, out=terms, dtype=np.float64)
                squared = float(np.einsum("i,i->", terms, terms))
                if not _are_within(terms, squared, self._limit):
                    return low, squares
                squares += squared
                if not sign:
                    continue
                terms += _MAGIC
                whole -= _MAGIC_BITS
                if sign > 0:
                    sums += whole
                else:
                    sums -= whole
        return count, squares

    def merge(self, pieces: Iterator[npt.NDArray[np.int64]], weight_units: int) -> None:
        """Adds another accumulator's partial sum of the same layout and scale."""
        position = 0
        for piece in pieces:
            with self._cells.window(position, position + len(piece)) as cells:
                cells += piece
            position += len(piece)
        if position != self.elements:
            raise ValueError(f"a partial sum of {position} elements cannot be merged into one of {self.elements}")
        self.weight_units += weight_units

    def pieces(self) -> Iterator[npt.NDArray[np.int64]]:
        """The partial sum, a window at a time, for another accumulator's `merge`."""
        for start in range(0, self.elements, WINDOW):
            with self._cells.window(start, min(start + WINDOW, self.elements)) as cells:
                yield cells.copy()

    def means(self) -> Iterator[npt.NDArray[np.float64]]:
        """The mean of the updates, a window at a time."""
        if self.weight_units <= 0:
            raise ValueError("nothing was folded in, so there is no mean")
        for start in range(0, self.layout.elements, WINDOW):
            with self._cells.window(start, min(start + WINDOW, self.layout.elements)) as cells:
                mean = cells / 2.0**self.scale
            mean /= self.weight
            yield mean

    def total(self) -> npt.NDArray[np.float64]:
        """The sum itself, not divided by the weight (for small models: surveys)."""
        return np.concatenate([piece / 2.0**self.scale for piece in self.pieces()])

    def close(self) -> None:
        """Gives the memory, or the file, back."""
        self._cells.close()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="fold")


def _windows(elements: int) -> list[int]:
    """Yield the lengths of the windows that cover this number of elements."""
    return [min(WINDOW, elements - start) for start in range(0, elements, WINDOW)]


def _are_within(terms: npt.NDArray[np.float64], squared: float, limit: float) -> bool:
    """Whether every term is a finite number of magnitude at most `limit`; `squared` is the sum of their squares."""
    # No term exceeds the root of the sum of squares, so one fast pass settles almost every chunk; NaN and infinity
    # make the sum NaN or infinite and are left to the comparisons, which NaN fails.
    if squared <= limit * limit:
        return True
    return bool(terms.max() <= limit and terms.min() >= -limit)


class _Window:
    """A run of cells, mapped only while in use so that a large accumulator does not stay resident."""

    def __init__(self, cells: npt.NDArray[np.int64]) -> None:
        self._cells: npt.NDArray[np.int64] | None = cells

    def __enter__(self) -> npt.NDArray[np.int64]:
        assert self._cells is not None
        return self._cells

    def __exit__(self, *_: object) -> None:
        self._cells = None


def _memory_file() -> IO[bytes]:
    """A file without a name that is never written to disk; where the system has none, a temporary one."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("coterie-sum"), "r+b")
    return tempfile.TemporaryFile()


class _Cells:
    """A flat vector of int64 zeros: an array when small, else a nameless file of which only windows are mapped."""

    def __init__(self, elements: int) -> None:
        self._file: IO[bytes] | None = None
        self._array: npt.NDArray[np.int64] | None = None
        if elements <= IN_MEMORY:
            self._array = np.zeros(elements, np.int64)
        else:
            self._file = _memory_file()
            self._file.truncate(elements * 8)

    def window(self, start: int, stop: int) -> _Window:
        if self._array is not None:
            return _Window(self._array[start:stop])
        assert self._file is not None
        if start == stop:
            return _Window(np.empty(0, np.int64))
        # A mapping begins at a whole page; filling it at once is cheaper than a fault per page.
        first = start * 8 // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        mapping = mmap.mmap(self._file.fileno(), stop * 8 - first, flags, offset=first)
        return _Window(np.frombuffer(mapping, np.int64, offset=start * 8 - first))

    def close(self) -> None:
        self._array = None
        if self._file is not None:
            self._file.close()


def weight_of(units: int) -> float:
    """Return the weight of this number of units."""
    return units / _UNIT


def units(weight: float) -> int:
    """A weight in whole units of 2^-40."""
    return round(weight * _UNIT)
