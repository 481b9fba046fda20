"""States, roles and kinds as REST and the tables spell them; gRPC uses the enums of `enums.proto`."""

from __future__ import annotations

from coterie.records.base import OpenEnum


class DeviceState(OpenEnum):
    """State of a device."""

    ACTIVE = "active"
    REVOKED = "revoked"


class DecisionState(OpenEnum):
    """What became of an owner's decision."""

    WAITING = "waiting"
    DONE = "done"
    REFUSED = "refused"
    """The device does not believe it, or could not do so; its note says why."""


class InteractionState(OpenEnum):
    """Whether a reported interaction counts as evidence."""

    COUNTED = "counted"
    UNCONFIRMED = "unconfirmed"
    """Good, and waits for the other end to say so too."""
    EXPIRED = "expired"
    """The other end never said so."""
    SURPLUS = "surplus"
    """More than counts in a day."""


class TaskState(OpenEnum):
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


class JoinBy(OpenEnum):
    """Who may join a task: any device, those of the owners invited, or the devices invited."""

    OPEN = "open"
    OWNERS = "owners"
    DEVICES = "devices"


class RoundMode(OpenEnum):
    """Whether rounds wait for their devices, or the model steps whenever a buffer of updates is full."""

    SYNCHRONOUS = "synchronous"
    ASYNCHRONOUS = "asynchronous"


class EnrolmentState(OpenEnum):
    """State of a device's part in a task."""

    ACTIVE = "active"
    WITHDRAWN = "withdrawn"


class RoundState(OpenEnum):
    """State of a round."""

    OPEN = "open"
    CLOSING = "closing"
    SETTLING = "settling"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The round does not exist."""


class ParticipationState(OpenEnum):
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


class Role(OpenEnum):
    """What a participant does in a round."""

    SOLO = "solo"
    HEAD = "head"
    MEMBER = "member"
    PEER = "peer"
    IDLE = "idle"


class Form(OpenEnum):
    """What a delivery is: the model's change, an un-normalised weighted sum, metrics only, or masked words."""

    MEAN = "mean"
    SUM = "sum"
    REPORT = "report"
    MASKED = "masked"


class Reception(OpenEnum):
    """What became of a delivery."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """Stored before."""
    LATE = "late"
    """The round was over; nothing changed."""


class LetterKind(OpenEnum):
    """What is in a sealed letter."""

    UPDATE = "update"
    PARAMETERS = "parameters"
    RECEIPT = "receipt"


class EventKind(OpenEnum):
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
    ROUND_VALUED = "round.valued"
    """What each device contributed is known, or will not be."""
    DEVICE_DROPPED = "device.dropped"
    DEVICE_REJECTED = "device.rejected"
    DEVICE_ORPHANED = "device.orphaned"
    UPDATE_REJECTED = "update.rejected"
    UPDATE_STALE = "update.stale"
    """It came too many versions late to count."""
    UPDATE_SUSPICIOUS = "update.suspicious"
    WORK_DECLINED = "work.declined"
    VERDICT_DISPUTED = "verdict.disputed"
    """A member objects to what its head said of it."""
    SUM_COMMITTEE_SELECTED = "sum.committee_selected"
    """A committee of clerks was selected for a secure sum."""
    SUM_OPENED = "sum.opened"
    SUM_COUNTED = "sum.counted"
    """The clerks can serve the same survivors."""
    SUM_UNMASKED = "sum.unmasked"
    SUM_UNCHECKED = "sum.unchecked"
    """Fewer clerks than prove it reported some share alike."""
    SUM_FAILED = "sum.failed"
    CLERK_SILENT = "clerk.silent"
    CLERK_OUTVOTED = "clerk.outvoted"
    ROUND_WARNED = "round.warned"
    """A condition under which learning is known to converge does not hold."""


class SumState(OpenEnum):
    """Where the sum of a cohort stands in its session."""

    SELECTING = "selecting"
    OPEN = "open"
    COUNTING = "counting"
    CLOSING = "closing"
    SETTLING = "settling"
    DONE = "done"
    FAILED = "failed"


class ClerkState(OpenEnum):
    """Where a clerk stands in a session."""

    SERVING = "serving"
    RELEASED = "released"
    """Gave its assignment up to another before terms were written."""
    SILENT = "silent"
    OUTVOTED = "outvoted"


class DutyKind(OpenEnum):
    """What a clerk is to do."""

    KEY_OFFER = "key_offer"
    READY_CHECK = "ready_check"
    COMMIT = "commit"
    ANSWER = "answer"
    FORGET = "forget"


class SumDocument(OpenEnum):
    """What may be read of a sum."""

    TERMS = "terms"
    PARTICIPANTS = "participants"
    CANDIDATES = "candidates"


class ScheduleStatus(OpenEnum):
    """Whom the schedule of a round serves: all devices, some, or none."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    EMPTY = "empty"


class PolicyState(OpenEnum):
    """State of a scheduling policy."""

    TRAINING = "training"
    READY = "ready"
    FAILED = "failed"


class PolicyLearner(OpenEnum):
    """How a scheduling policy learns."""

    VDN = "vdn"
    IQL = "iql"


class PolicyNetwork(OpenEnum):
    """What a scheduling policy values decisions with."""

    POINTER = "pointer"
    SET = "set"


class PolicyPenalty(OpenEnum):
    """What a scheduling policy pays for a schedule that breaks a limit."""

    DYNAMIC = "dynamic"
    FIXED = "fixed"


class QuoteStatus(OpenEnum):
    """How a round was priced."""

    OK = "ok"
    LIMITED = "limited"
    """Lower than the leader would like: the purse is too small."""
    INFEASIBLE = "infeasible"
    BOUNDARY = "boundary"
    NO_MEAN_FIELD_PRICE = "no mean-field price"
    NOT_CONVERGED = "not converged"
    NO_POSITIVE_PRICES = "no positive prices"


class PostingKind(OpenEnum):
    """What a posting was for."""

    DEPOSIT = "deposit"
    ESCROW = "escrow"
    PAYMENT = "payment"
    RELEASE = "release"


class PrivacyMechanism(OpenEnum):
    """What a release was noised with."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    ZCDP = "zcdp"
    RAW = "raw"


class PrivacyUnit(OpenEnum):
    """What noise hides."""

    EXAMPLE = "example"
    DEVICE = "device"


class PrivacyAdjacency(OpenEnum):
    """What a loss compares a unit's contribution with: none, or any other."""

    LEFT_OUT = "left-out"
    REPLACED = "replaced"


class PrincipalRole(OpenEnum):
    """The role in which a principal calls."""

    ADMIN = "admin"
    PUBLISHER = "publisher"
    DEVICE = "device"
    SERVICE = "service"
    """The platform itself."""
    ANONYMOUS = "anonymous"
    """Has no key yet and asks for one."""


class RelationKind(OpenEnum):
    """How two devices come to be related."""

    OWNERSHIP = "ownership"
    PARENTAL = "parental"
    CO_LOCATION = "co-location"
    CO_WORK = "co-work"
    SOCIAL = "social"
    SOCIAL_PUBLIC = "social-public"
    FRIENDSHIP = "friendship"
