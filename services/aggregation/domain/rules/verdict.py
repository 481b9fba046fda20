"""What the two kinds of rules answer.

A *linear* rule looks at whole updates and gives each a share: the result is Σ share·update / Σ share (or, around an
origin, origin + Σ share·(update − origin)). A *coordinate-wise* rule looks at each coordinate by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from services.aggregation.domain.rules.geometry import Cloud
from services.aggregation.domain.rules.rows import Matrix, Vector


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the points, and why some of them do not count at all."""

    shares: Vector
    why: Mapping[int, str] = field(default_factory=dict)


class Linear(Protocol):
    """A rule whose result is a mixture of the updates."""

    def origin(self, elements: int) -> Vector | None:
        """Where shares are measured from; None: nowhere, they are divided by their sum."""

    def judge(self, cloud: Cloud) -> Mixture:
        """Shares of the points."""


@runtime_checkable
class Coordinatewise(Protocol):
    """A rule that knows one coordinate at a time."""

    @property
    def why(self) -> str:
        """Why a device counts in no coordinate."""

    def combine(self, values: Matrix, weights: Vector | None) -> tuple[Vector, npt.NDArray[np.bool_]]:
        """Result of each column, and which rows count in at least one. `weights` None: all the same."""
