"""States and roles, as REST spells them."""

from __future__ import annotations

from coterie.records.base import Word


class DeviceState(Word):
    """State of a device."""

    ACTIVE = "active"
    REVOKED = "revoked"


class TaskState(Word):
    """State of a task."""

    CREATED = "created"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to the task."""
        return self in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)


class EnrolmentState(Word):
    """State of a device's part in a task."""

    ACTIVE = "active"
    WITHDRAWN = "withdrawn"


class RoundState(Word):
    """State of a round."""

    OPEN = "open"
    CLOSING = "closing"
    SETTLING = "settling"
    DONE = "done"
    FAILED = "failed"


class ParticipationState(Word):
    """State of a device's part in a round."""

    ASSIGNED = "assigned"
    WORKING = "working"
    DELIVERED = "delivered"
    LATE = "late"
    REJECTED = "rejected"
    DROPPED = "dropped"
    DECLINED = "declined"
    ORPHANED = "orphaned"


class Role(Word):
    """What a participant does in a round."""

    SOLO = "solo"
    HEAD = "head"
    MEMBER = "member"
    PEER = "peer"
    IDLE = "idle"


class PolicyState(Word):
    """State of a scheduling policy."""

    TRAINING = "training"
    READY = "ready"
    FAILED = "failed"
