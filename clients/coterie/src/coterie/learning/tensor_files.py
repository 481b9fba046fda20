"""Read tensor files from outside: safetensors, rejected where a header contains a name twice.

A reader that keeps the first of two entries and one that keeps the last would read two different models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors
from safetensors.numpy import load_file as load_tensor_file

PREFIX_BYTES = 8
MAX_HEADER_BYTES = 4 << 20


def load(body: bytes) -> dict[str, NDArray[Any]]:
    """Tensors of a file's bytes; raises `SafetensorError`, ValueError or KeyError for other bytes."""
    _check(body[:PREFIX_BYTES], body[PREFIX_BYTES : PREFIX_BYTES + MAX_HEADER_BYTES])
    return load_tensors(body)


def load_file(path: Path) -> dict[str, NDArray[Any]]:
    """Tensors of a file; raises as `load`."""
    with path.open("rb") as file:
        _check(file.read(PREFIX_BYTES), file.read(MAX_HEADER_BYTES))
    return load_tensor_file(path)


def refuse_repeats(header: bytes) -> None:
    """Raises ValueError where an object of a JSON header has one name twice."""
    try:
        json.loads(header.decode(), object_pairs_hook=_named_once)
    except RecursionError as error:
        raise ValueError("the header is nested too deeply") from error


def _named_once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) == len(pairs):
        return
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"the header names {name[:40]!r} twice")
        seen.add(name)


def _check(prefix: bytes, start: bytes) -> None:
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"the header has {length} bytes; at most {MAX_HEADER_BYTES} are read")
    refuse_repeats(start[:length])
