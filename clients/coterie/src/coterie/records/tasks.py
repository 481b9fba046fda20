"""Tasks, enrolments, rounds, events, models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.records.base import Object, Record
from coterie.records.words import EnrolmentState, EventKind, ParticipationState, Role, RoundState, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpecification(Record):
    """What was asked for, with every default filled in."""

    name: str
    preset: str
    topology: str
    privacy: str
    incentive: str
    model_digests: tuple[str, ...]
    """SHA-256 of each initial model, one per model line."""
    rounds: int
    min_devices: int
    """Fewest devices a round may close with."""
    quorum: float
    """Fraction of a round's participants that must deliver."""
    round_seconds: float
    """Seconds a round stays open at most."""
    max_attempts: int
    """Times a round is opened again when its quorum is missed; -1 means never."""
    max_devices: int
    """Most devices per round, chosen at random; 0 = all."""
    training: Object
    """What devices are told about training."""
    parameters: Object
    """Parameters of the axes."""
    escrow_microcredits: int
    seed: int
    """Seed of every random choice the platform makes for this task."""
    privacy_unit: str
    """What noise protects: "example" or "device"."""
    auto_start: bool
    description: str
    """What a device's owner reads before joining; the question, in a survey."""
    rule: str = "mean"
    """How a round's updates become a step of the model: "nnm+trimmed-mean", "fedadam"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Record):
    """A task."""

    id: str
    publisher: str
    specification: TaskSpecification
    state: TaskState
    """"created", "running", "finished", "failed" or "cancelled"."""
    reason: str
    """Why it ended; empty before."""
    round: int
    """Round it is in, 0 before the first."""
    enrolled: int
    """Devices enrolled now."""
    created_at: float
    started_at: float
    """0 = not yet."""
    ended_at: float
    """0 = not yet."""
    model_digests: tuple[str, ...]
    """Newest model version's digest per model line."""
    last_event: int
    """Number of the last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment(Record):
    """A device's part in a task."""

    task_id: str
    device_id: str
    state: EnrolmentState
    """"active" or "withdrawn"."""
    samples: int
    non_iid: float
    """Declared degree of non-IID data; 0 = unknown."""
    enrolled_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Record):
    """A round."""

    task_id: str
    number: int
    """From 1."""
    attempt: int
    """Times it was opened, from 1."""
    state: RoundState
    """"open", "closing", "settling", "done" or "failed"."""
    participants: int
    delivered: int
    """Updates taken."""
    quorum: int
    """Updates needed."""
    opened_at: float
    deadline_at: float
    """When this attempt ends at the latest."""
    done_at: float
    """0 = not yet."""
    plan_version: int
    metrics: Mapping[str, float]
    """Means of the participants' metrics weighted by samples."""
    model_digests: tuple[str, ...]
    """Digest of the model each line ended with; empty until closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Participation(Record):
    """One device in a round."""

    device_id: str
    role: Role
    """"solo", "head", "member", "peer" or "idle"."""
    state: ParticipationState
    """"assigned", "delivered", "late", "rejected", "dropped", "declined", "orphaned" (head gone) or "idle"
    (not served)."""
    weight: float
    """Weight its update was folded with."""
    metrics: Mapping[str, float]
    delivered_at: float
    """0 = not."""
    payload_bytes: int
    """Size of what it sent."""
    note: str
    """Why it was rejected, and the like."""
    model_index: int
    """Model line it trained."""
    aside: str = ""
    """Why the task's rule did not count its update; empty where it did."""
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDetail(Record):
    """A round with everybody in it."""

    round: Round
    participations: tuple[Participation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Record):
    """Something that happened to a task."""

    number: int
    """Increases over all tasks."""
    task_id: str
    at: float
    kind: EventKind
    """What, such as "task.started", "round.opened" or "update.rejected"."""
    round: int
    """0 = none."""
    device_id: str
    """Empty = none."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Record):
    """A version of a model."""

    task_id: str
    line: int
    """Model line, from 0."""
    version: int
    """0 is the initial model, n the one made by round n."""
    digest: str
    """SHA-256, hexadecimal."""
    size_bytes: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel(Record):
    """An uploaded model."""

    digest: str
    """SHA-256, hexadecimal."""
    size_bytes: int
    tensors: int
    """How many tensors it has."""
    parameters: int
    """How many numbers they hold."""
