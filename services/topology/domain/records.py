"""What the planner remembers besides messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy's row: "training", "ready" or "failed"; digest of its newest checkpoint; request: the whole job."""

    id: str
    learner: str
    layout: str
    state: str
    progress: float
    reward: float
    created_at: float
    reason: str
    digest: str
    request: bytes
