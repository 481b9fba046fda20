"""Tasks, enrolments, rounds, events, models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.records.base import Object, Record
from coterie.records.enums import (
    EnrolmentState,
    EventKind,
    JoinBy,
    ParticipationState,
    PrivacyUnit,
    Role,
    RoundMode,
    RoundState,
    TaskState,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Record):
    """When a task stops before its last round."""

    metric: str
    """Figure that is watched."""
    at: float | None
    """Stop once a model version reaches this; null = no target."""
    patience: int
    """Stop when no version was better than the best for this many; 0 = never."""
    better: str
    """"up" or "down": which way is better."""


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
    """The training object, see `coterie.learning.training_config`."""
    parameters: Object
    """Parameters of the axes."""
    escrow_microcredits: int
    seed: int
    """Seed of every random choice the platform makes for this task."""
    privacy_unit: PrivacyUnit
    """What noise protects: "example" or "device"."""
    auto_start: bool
    description: str
    """What a device's owner reads before joining; the question, in a survey."""
    rule: str = "mean"
    """How a round's updates become a step of the model: "nnm+trimmed-mean", "fedadam"."""
    join_by: JoinBy = JoinBy.OPEN
    """Who may join: "open", "owners" or "devices"."""
    invited: tuple[str, ...] = ()
    """Owners or devices that may join a task that is not open."""
    mode: RoundMode = RoundMode.SYNCHRONOUS
    """"synchronous" or "asynchronous": whether rounds wait for their devices."""
    keep_rounds: int = 0
    """Rounds whose updates stay stored; -1 = none, 0 = 100 in an asynchronous task."""
    fraction: float = 0.0
    """Share of the devices that take part in a round, chosen at random; 0 = all."""
    stop: Stop | None = None
    """When the task stops before its last round; null = never."""


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
    best_version: int | None = None
    """Version with the best figure that `stop` watches; null without one."""
    better: Mapping[str, str] = field(default_factory=dict)
    """Which way figures get better, "up" or "down", where devices or `stop` said so; the others go by their names."""


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
    measures: bool = False
    """Whether it measures models without training them when asked."""


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
    """Means of the participants' metrics by samples measured; but for meshes and surveys of the model the round began
    with, version `number` − 1."""
    model_digests: tuple[str, ...]
    """Digest of the model each line ended with; empty until closed."""
    disputed: int = 0
    """Verdicts of heads that their members objected to."""


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
    excluded_because: str = ""
    """Why the task's rule did not count its update; empty where it did."""
    judged_by: str = ""
    """Head whose word alone the state and the note are, although the device's report came in time; empty = none."""
    objection: str = ""
    """What the device objects to that with; empty = nothing."""
    round: int
    base: int = 0
    """Round whose model its update was made from; below `round` when it came late; 0 = none came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDetail(Record):
    """A round with all its participations."""

    round: Round
    participations: tuple[Participation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRound(Record):
    """A round's models made again from its stored updates."""

    round: int
    """Its number; it made this version of the model."""
    updates: int
    """Updates that were counted in it."""
    staleness: int
    """Greatest staleness among them, in versions."""
    model_digests: tuple[str, ...]
    """Of each model line as the round ended."""
    replayed_digests: tuple[str, ...]
    """The same, made again; empty where the updates are stored no longer."""
    same: bool
    """Whether every bit is the same."""
    note: str
    """Why it was not made again; empty where it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Record):
    """Models whose worth is asked for; without a digest there is nothing to ask."""

    task_id: str
    round: int
    """Round whose updates are valued; 0 = none."""
    model_digest: str
    """A file with the task's tensors, each with one more dimension in front: model after model."""
    size_bytes: int
    models: int
    """How many it holds."""
    known: int
    """Models of the round whose worth is known."""
    players: int
    """Devices, or clusters, whose updates are valued."""
    ended: bool
    """The task has ended and nothing is left to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationAnswer(Record):
    """What an answer led to."""

    is_valued: bool
    """Whether the round's contributions are known by now."""
    known: int
    """Models of the round whose worth is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution(Record):
    """What a device contributed to a task."""

    device_id: str
    """The head's where a cluster's sum was valued."""
    rounds: int
    """Rounds that were valued with it."""
    value: float
    """Sum of its Shapley values, in units of the publisher's worth."""
    error: float
    """Standard error of that sum."""


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
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of what devices measured of this very version, by samples measured; empty = not measured."""
    devices: int = 0
    """Devices whose figures these are."""
    samples: float = 0.0
    """Samples they measured."""
    evaluated: Mapping[str, float] = field(default_factory=dict)
    """What the publisher's evaluator measured; empty = not measured."""
    agreed: Mapping[str, float] = field(default_factory=dict)
    """What devices of more than half of the owners measured of this version (of all lines), or better: `stop` goes by
    it. Without figures that fewer than three devices of three owners told (all, where fewer take part)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Record):
    """What one device measured of a model version."""

    device_id: str
    samples: float
    """Samples it measured."""
    metrics: Mapping[str, float]
    measured_at: float


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSweep(Record):
    """What a sweep of the blob store found."""

    seen: int
    """Blobs looked at."""
    orphans: int
    """Those that nothing refers to and that are old enough."""
    orphan_bytes: int
    """Their size together."""
    removed: int
    """Removed; 0 when it was only looked."""
    digests: tuple[str, ...]
    """Some of them, at most 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning(Record):
    """What of tasks that ended long ago was forgotten, or would be."""

    tasks: int
    """Tasks that had something to forget."""
    participations: int
    """Parts of devices in rounds."""
    events: int
    """Entries of event logs."""
    others: int
    """Other rows: letters, sessions of secure sums, devices' own figures, worths of coalitions."""
    blobs: int
    """Stored updates and letters that nothing needs then."""
