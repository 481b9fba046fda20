"""Where each tensor lies in a safetensors file, read from its header alone.

Only files of floating-point tensors pass: counters cannot be averaged. The header comes from outside, so its size, its
form and every number in it are bounded before they are used, and what a refusal repeats of it is short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import orjson

from coterie.learning import tensor_files
from services.aggregation.errors import BadModel

PREFIX_BYTES = tensor_files.PREFIX_BYTES
MAX_HEADER_BYTES = tensor_files.MAX_HEADER_BYTES
MAX_TENSORS = 20_000
MAX_DIMENSIONS = 8
MAX_NAME_CHARACTERS = 200
METADATA = "__metadata__"
FACTS = {"dtype", "shape", "data_offsets"}
DTYPES: dict[str, np.dtype[np.floating[Any]]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor's place: bytes [start, stop) of the file, first element at `offset` in the flat model."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int
    offset: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """All tensors of a file in the order of their bytes; `header_bytes` come before the first."""

    tensors: tuple[Tensor, ...]
    header_bytes: int
    total_bytes: int

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    def fits(self, other: Layout) -> str:
        """Why `other` has not the same tensors, shapes and dtypes as this; empty when it has."""
        if other.tensors == self.tensors:
            return ""
        ours = {tensor.name: tensor for tensor in self.tensors}
        theirs = {tensor.name: tensor for tensor in other.tensors}
        for name in sorted(ours.keys() - theirs.keys()):
            return f"tensor {name!r} is missing"
        for name in sorted(theirs.keys() - ours.keys()):
            return f"tensor {name!r} is not in the model"
        for name, tensor in ours.items():
            if theirs[name].shape != tensor.shape:
                return f"tensor {name!r} has shape {list(theirs[name].shape)}, the model's is {list(tensor.shape)}"
            if theirs[name].dtype != tensor.dtype:
                return f"tensor {name!r} has dtype {theirs[name].dtype}, the model's is {tensor.dtype}"
        return ""


def header_length(prefix: bytes, total_bytes: int) -> int:
    """Length of the JSON header, from the file's first eight bytes."""
    if len(prefix) < PREFIX_BYTES:
        raise BadModel(f"a safetensors file has at least {PREFIX_BYTES} bytes, this has {len(prefix)}")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if not 2 <= length <= total_bytes - PREFIX_BYTES:
        raise BadModel(f"not a safetensors file: its first eight bytes announce a header of {length} bytes")
    if length > MAX_HEADER_BYTES:
        raise BadModel(f"the file's header has {length} bytes; at most {MAX_HEADER_BYTES} are taken")
    return length


def parse(header: bytes, total_bytes: int, dtypes: Mapping[str, np.dtype[Any]] = DTYPES) -> Layout:
    """The layout that a JSON header describes, for a file of `total_bytes` bytes in all and tensors of these types."""
    entries = _entries(header)
    base = PREFIX_BYTES + len(header)
    places = sorted(
        (_place(name, entry, base, dtypes) for name, entry in entries.items()), key=lambda place: (place[3], place[0])
    )
    tensors, position, offset = [], base, 0
    for name, dtype, shape, start, stop in places:
        if start != position:
            raise BadModel(f"tensor {name!r} begins at byte {start}, not at {position} where the last one ended")
        tensors.append(Tensor(name, dtype, shape, start, stop, offset))
        position, offset = stop, offset + math.prod(shape)
    if position != total_bytes:
        raise BadModel(
            f"the tensors end at byte {position} of {total_bytes}: the file was cut short or has bytes too many"
        )
    return Layout(tuple(tensors), base, total_bytes)


def _entries(header: bytes) -> dict[str, object]:
    """What the header says of each tensor, its notes left out."""
    try:
        entries = orjson.loads(header)  # refuses what is nested deeper than its own bound, as not JSON
    except ValueError as error:
        raise BadModel("not a safetensors file: its header is not JSON") from error
    try:
        tensor_files.refuse_repeats(header)
    except ValueError as error:
        raise BadModel(f"not a sound safetensors file: {error}") from error
    if not isinstance(entries, dict):
        raise BadModel("not a safetensors file: its header is not a JSON object")
    notes = entries.pop(METADATA, {})
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise BadModel(f"the header's {METADATA} must be an object of texts")
    if not 1 <= len(entries) <= MAX_TENSORS:
        raise BadModel(f"the file has {len(entries)} tensors; from 1 to {MAX_TENSORS} are taken")
    for name in entries:
        if len(name) > MAX_NAME_CHARACTERS:
            raise BadModel(
                f"a tensor's name has {len(name)} characters, at most {MAX_NAME_CHARACTERS} are taken: {name[:40]!r}…"
            )
    return entries


def _place(
    name: str, entry: object, base: int, dtypes: Mapping[str, np.dtype[Any]]
) -> tuple[str, str, tuple[int, ...], int, int]:
    if not isinstance(entry, dict) or entry.keys() != FACTS:
        raise BadModel(f"tensor {name!r} must be described by dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in dtypes:
        given, known = dtype[:20] if isinstance(dtype, str) else "that is not a string", ", ".join(dtypes)
        raise BadModel(
            f"tensor {name!r} has dtype {given}; only {known} can be averaged: leave counters out of the model"
        )
    if isinstance(shape, list) and len(shape) > MAX_DIMENSIONS:
        raise BadModel(f"tensor {name!r} has {len(shape)} dimensions; at most {MAX_DIMENSIONS} are taken")
    if not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        raise BadModel(f"tensor {name!r} has no sound shape and offsets")
    size = math.prod(shape) * dtypes[dtype].itemsize
    if offsets[1] - offsets[0] != size:
        raise BadModel(
            f"tensor {name!r} of shape {shape} needs {size} bytes, the header gives it {offsets[1] - offsets[0]}"
        )
    return name, dtype, tuple(shape), base + offsets[0], base + offsets[1]


def _are_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 48 for item in value)
