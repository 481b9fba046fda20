"""Privacy spent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from coterie.records.base import Extended, Known, Limits, Record
from coterie.records.enums import PrivacyAdjacency, PrivacyMechanism, PrivacyUnit

NO_UNIT, NO_ADJACENCY = PrivacyUnit(""), PrivacyAdjacency("")
"""Not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyClaim(Record):
    """One use of a privacy mechanism: as a device reports it, as the gateway takes it, and as rows keep it."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "allow_inf_nan": False,
        "use_attribute_docstrings": True,
    }

    mechanism: Annotated[PrivacyMechanism, Known()]
    parameter: Annotated[float, Limits(0, 1e15)]
    """Noise multiplier (gaussian), ε (laplace) or ρ (zcdp)."""
    unit: Annotated[PrivacyUnit, Known()]
    sampling_rate: Annotated[float, Limits(0, 1)] = 0.0
    """Fraction of the data used; 0 or 1 = all."""
    steps: Annotated[int, Limits(0, 2**31 - 1)] = 0
    """Repetitions; 0 means 1."""
    adjacency: Annotated[PrivacyAdjacency, Known("")] = NO_ADJACENCY
    """What the loss compares a contribution with: none, or any other; empty = the usual one of the mechanism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPrivacy(Record):
    """Privacy spent in one task."""

    task_id: str
    rounds: int
    """Rounds charged."""
    epsilon: Extended
    """Composed over the task at the report's δ; "inf" = no noise was added."""
    unit: PrivacyUnit
    """What noise protects: "example" or "device"."""
    adjacency: PrivacyAdjacency = NO_ADJACENCY
    """What `epsilon` compares the unit's contribution with: none ("left-out") or any other ("replaced")."""
    epsilon_replaced: Extended = math.inf
    """The same for the unit replaced."""
    in_words: str = ""
    """All of that for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyReport(Record):
    """Privacy a device spent."""

    device_id: str
    delta: float
    epsilon: Extended
    """Composed over all tasks."""
    unit: PrivacyUnit = NO_UNIT
    """What all releases of all tasks hide: "example" or "device"."""
    adjacency: PrivacyAdjacency = NO_ADJACENCY
    """What `epsilon` compares the unit's contribution with: none ("left-out") or any other ("replaced")."""
    epsilon_replaced: Extended = math.inf
    """The same for the unit replaced."""
    in_words: str = ""
    """All of that for people."""
    tasks: tuple[TaskPrivacy, ...]
