"""Models as files and as vectors: named arrays in and out, without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from coterie.agent.report import Tensors
from coterie.errors import WrongModel
from coterie.learning.tensor_files import load_file

Vector = NDArray[np.float64]
STATISTICS = ("running_mean", "running_var")
"""Last parts of the names of tensors that are measured, not trained: a batch normalisation's."""


def is_statistic(name: str) -> bool:
    """Whether a tensor holds running statistics: averaged as values they mean something, with noise or a step not."""
    return name.rpartition(".")[2] in STATISTICS


def load_model(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    """Tensors of a model file; no code is ever read from it."""
    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise WrongModel(f"{path.name[:12]}… is not a readable safetensors file ({error})") from error


@dataclass(frozen=True, slots=True)
class Flat:
    """Some tensors of a model as one vector, in a fixed order."""

    names: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, tensors: Tensors, names: Sequence[str]) -> Flat:
        """The vector of these tensors."""
        return cls(tuple(names), {name: tensors[name].shape for name in names})

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def vector(self, tensors: Tensors) -> Vector:
        """The tensors as a vector."""
        return np.concatenate([np.ravel(tensors[name]).astype(np.float64) for name in self.names])

    def put(self, vector: NDArray[np.floating[Any]], into: Tensors) -> dict[str, NDArray[np.floating[Any]]]:
        """`into` with these tensors replaced by the vector's numbers, each in the type it had."""
        if vector.shape != (self.size,):
            raise ValueError(f"the model has {self.size} parameters, got a vector of shape {vector.shape}")
        tensors, start = dict(into), 0
        for name in self.names:
            stop = start + int(np.prod(self.shapes[name]))
            tensors[name] = vector[start:stop].reshape(self.shapes[name]).astype(into[name].dtype)
            start = stop
        return tensors
