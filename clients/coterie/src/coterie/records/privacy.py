"""Privacy spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from coterie.records.base import Extended, Record
from coterie.records.words import PrivacyAdjacency, PrivacyUnit

NO_UNIT, NO_ADJACENCY = PrivacyUnit(""), PrivacyAdjacency("")
"""What a 0.1.0 platform told: nothing."""


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
