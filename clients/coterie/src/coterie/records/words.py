"""States, roles and kinds, as REST and the tables spell them; between services they are the enums of `words.proto`."""

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
    UNKNOWN = "unknown"
    """There is no such round."""


class ParticipationState(Word):
    """State of a device's part in a round."""

    ASSIGNED = "assigned"
    DELIVERED = "delivered"
    LATE = "late"
    REJECTED = "rejected"
    DROPPED = "dropped"
    DECLINED = "declined"
    ORPHANED = "orphaned"
    """Its head delivered nothing."""
    IDLE = "idle"
    """The plan does not serve it this round."""


class Role(Word):
    """What a participant does in a round."""

    SOLO = "solo"
    HEAD = "head"
    MEMBER = "member"
    PEER = "peer"
    IDLE = "idle"


class Form(Word):
    """What a delivery is: the model's change, an un-normalised weighted sum, or metrics only."""

    MEAN = "mean"
    SUM = "sum"
    REPORT = "report"


class Reception(Word):
    """What became of a delivery."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """Stored before."""
    LATE = "late"
    """The round was over; nothing changed."""


class LetterKind(Word):
    """What is in a sealed letter."""

    UPDATE = "update"
    PARAMETERS = "parameters"
    RECEIPT = "receipt"


class EventKind(Word):
    """What happened to a task."""

    TASK_CREATED = "task.created"
    TASK_STARTED = "task.started"
    TASK_FINISHED = "task.finished"
    TASK_FAILED = "task.failed"
    TASK_CANCELLED = "task.cancelled"
    ROUND_OPENED = "round.opened"
    ROUND_REOPENED = "round.reopened"
    ROUND_CLOSED = "round.closed"
    ROUND_COMBINED = "round.combined"
    """Which updates the task's rule used."""
    ROUND_SETTLED = "round.settled"
    DEVICE_DROPPED = "device.dropped"
    DEVICE_REJECTED = "device.rejected"
    DEVICE_ORPHANED = "device.orphaned"
    UPDATE_REJECTED = "update.rejected"
    UPDATE_SUSPICIOUS = "update.suspicious"
    WORK_DECLINED = "work.declined"


class PolicyState(Word):
    """State of a scheduling policy."""

    TRAINING = "training"
    READY = "ready"
    FAILED = "failed"
