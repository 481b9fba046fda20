"""What `coterie device run` trains: a part of the digits, or what a function in a file returns."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.samples import BadSource, digits, digits_model

if TYPE_CHECKING:
    import torch

    from coterie.training import Samples


@dataclass(frozen=True, slots=True)
class Source:
    """What a device trains: a module, its samples, and samples to measure it on (None = the same)."""

    model: torch.nn.Module
    data: Samples
    test_data: Samples | None = None


def digits_source(part: int, parts: int, *, seed: int = 0) -> Source:
    """One device's part of the digits, counted from 1."""
    if not 1 <= part <= parts:
        raise BadSource(f"part {part} of {parts} does not exist; parts count from 1")
    split = digits(parts, seed=seed)
    return Source(digits_model(), split.shards[part - 1], split.test)


def load_source(place: str) -> Source:
    """What `file.py:function` returns: (model, data) or (model, data, test_data)."""
    file, _, name = place.partition(":")
    path = Path(file)
    if not path.is_file() or not name:
        raise BadSource(f"{place!r} must be file.py:function with a file that exists")
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise BadSource(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    function: Callable[[], Any] | None = getattr(module, name, None)
    if function is None:
        raise BadSource(f"{file} has no function {name}")
    made = function()
    if not isinstance(made, tuple) or len(made) not in (2, 3):
        raise BadSource(f"{place} must return (model, data) or (model, data, test_data), not {type(made).__name__}")
    return Source(*made)
