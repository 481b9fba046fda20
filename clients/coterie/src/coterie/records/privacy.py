"""Privacy spent."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.base import Extended, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPrivacy(Record):
    """Privacy spent in one task."""

    task_id: str
    rounds: int
    """Rounds charged."""
    epsilon: Extended
    """Composed over the task at the report's δ; "inf" = no noise was added."""
    unit: str
    """What noise protects: "example" or "device"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyReport(Record):
    """Privacy a device spent."""

    device_id: str
    delta: float
    epsilon: Extended
    """Composed over all tasks."""
    tasks: tuple[TaskPrivacy, ...]
