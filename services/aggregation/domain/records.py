"""What the aggregation server remembers, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.privacy.claims import Claim
from coterie.records.words import (
    EnrolmentState,
    EventKind,
    Form,
    LetterKind,
    ParticipationState,
    Role,
    RoundState,
    TaskState,
)
from services.aggregation.domain.tasks import TaskSpecification


@dataclass(frozen=True, slots=True)
class Task:
    """A task and where it stands."""

    id: str
    publisher: str
    specification: TaskSpecification
    state: TaskState
    reason: str
    round: int
    created_at: float
    started_at: float
    ended_at: float
    released: bool
    revision: int

    @property
    def ended(self) -> bool:
        return self.state.has_ended


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A device's part in a task."""

    task_id: str
    device_id: str
    state: EnrolmentState
    samples: int
    non_iid: float
    enrolled_at: float


@dataclass(frozen=True, slots=True)
class Round:
    """A round of a task."""

    task_id: str
    number: int
    attempt: int
    state: RoundState
    quorum: int
    scale: int
    opened_at: float
    deadline_at: float
    plan_version: int
    done_at: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    model_digests: tuple[str, ...] = ()
    closer: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a device handed in for a round."""

    task_id: str
    round: int
    device_id: str
    digest: str
    size_bytes: int
    form: Form
    weight: float
    metrics: dict[str, float]
    model_index: int
    budget: float
    privacy: tuple[Claim, ...] = ()
    members: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Participation:
    """One device in a round.

    `refused` says that an update of an assigned device was refused: it may send another, and ends as rejected without.
    """

    task_id: str
    round: int
    device_id: str
    owner_id: str
    role: Role
    state: ParticipationState
    samples: int
    work: bytes
    note: str = ""
    refused: bool = False
    aside: str = ""
    digest: str = ""
    form: Form | None = None
    weight: float = 0.0
    payload_bytes: int = 0
    delivered_at: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    model_index: int = 0
    budget: float = 0.0
    privacy: list[Claim] = field(default_factory=list)
    members: list[dict[str, object]] = field(default_factory=list)
    replica: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """A version of one of a task's model lines; version 0 is the initial one."""

    task_id: str
    line: int
    version: int
    digest: str
    size_bytes: int
    created_at: float


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a task; `number` is 0 until stored."""

    task_id: str
    at: float
    kind: EventKind
    message: str
    round: int = 0
    device_id: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Letter:
    """A sealed letter from one device to another."""

    id: str
    task_id: str
    round: int
    plan_version: int
    sender: str
    recipient: str
    kind: LetterKind
    digest: str
    size_bytes: int
    sent_at: float


@dataclass(frozen=True, slots=True)
class Partial:
    """A replica's share of a round's sum: which devices' updates are in it, and where it is stored."""

    task_id: str
    round: int
    line: int
    replica: str
    digest: str
    weight_units: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task with what is counted for it."""

    task: Task
    enrolled: int
    model_digests: tuple[str, ...]
    last_event: int


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round with what is counted for it."""

    round: Round
    participants: int
    delivered: int
