"""What the planner remembers besides messages."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.enums import PolicyLearner, PolicyState


@dataclass(frozen=True, slots=True)
class MeasuredWay:
    """What was measured between two devices, or of a device's way to a cell; 0 for a part that was not.

    seconds: what a message took.  round_trip_seconds: what one takes that carries nothing.
    """

    seconds: float
    round_trip_seconds: float = 0.0
    bytes_per_second: float = 0.0

    def upload_seconds(self, bits: float) -> float:
        """Seconds for an upload of this many bits, or of the last upload where the throughput is unknown."""
        if not self.bytes_per_second > 0.0:
            return self.seconds
        return self.round_trip_seconds + bits / 8.0 / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class StationLease:
    """Who serves a cell: the SHA-256 of its token, and when it is lost unless it is heard of."""

    cell_id: str
    token_digest: str
    ends_at: float


@dataclass(frozen=True, slots=True)
class AskedStation:
    """A question to a station. question, answer: messages; an empty answer is none yet."""

    id: str
    cell_id: str
    asked_at: float
    ends_at: float
    taken: bool
    question: bytes
    answer: bytes


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
