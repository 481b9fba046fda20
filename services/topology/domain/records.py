"""What the planner remembers besides messages."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.words import PolicyLearner, PolicyState


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy's row; digest: of its newest checkpoint; request: the whole job."""

    id: str
    learner: PolicyLearner
    layout: str
    state: PolicyState
    progress: float
    reward: float
    created_at: float
    reason: str
    digest: str
    request: bytes
