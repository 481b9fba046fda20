"""What the aggregation server remembers, as plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.records.enums import (
    EnrolmentState,
    EventKind,
    Form,
    LetterKind,
    ParticipationState,
    Role,
    RoundState,
    TaskState,
)
from coterie.records.privacy import PrivacyClaim
from services.aggregation.domain.sum_sessions import MaskedUpdate
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
    best_version: int = -1

    @property
    def ended(self) -> bool:
        return self.state.has_ended


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A device's part in a task; `clerks` are those it takes in secure sums, none named means anybody."""

    task_id: str
    device_id: str
    state: EnrolmentState
    samples: int
    non_iid: float
    enrolled_at: float
    clerks: list[str] = field(default_factory=list)
    no_clerk: bool = False
    measures: bool = False
    better_json: str = ""
    owner_id: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A round of a task; `norm_bounds` are the longest updates taken, by model line, where earlier rounds say it.

    `closer` is the replica that closes and settles it, `fence` the number of that lease.
    """

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
    norm_bounds: dict[str, float] = field(default_factory=dict)
    fence: int = 0


def staleness_of(round: int, base: int) -> int:
    """Versions between the model an update was made from and the one it moves; `base` 0 = none."""
    return round - base if base else 0


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a device handed in for a round; `base` is the round whose model it was made from, 0 = the same.

    Of masked words: `terms` and `signature` bind them, and `masked` is what was found in them when they were taken.
    `norm` is the platform's own figure, of a sum that of its mean.
    """

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
    privacy: tuple[PrivacyClaim, ...] = ()
    members: tuple[dict[str, object], ...] = ()
    base: int = 0
    public_metrics: bool = False
    terms: str = ""
    signature: str = ""
    masked: MaskedUpdate | None = None
    norm: float = 0.0

    @property
    def staleness(self) -> int:
        return staleness_of(self.round, self.base)


@dataclass(frozen=True, slots=True)
class Participation:
    """One device in a round.

    `refused` says that an update of an assigned device was refused: it may send another, and ends as rejected without.
    `base` is the round whose model its update was made from, 0 before it delivers; `is_stored`: the update's bytes are
    still stored.
    `judged_by` is the head whose word alone the state is, although the device's report came in time; `objection` is
    what the device says to that.
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
    excluded_because: str = ""
    digest: str = ""
    form: Form | None = None
    weight: float = 0.0
    payload_bytes: int = 0
    delivered_at: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    model_index: int = 0
    budget: float = 0.0
    privacy: list[PrivacyClaim] = field(default_factory=list)
    members: list[dict[str, object]] = field(default_factory=list)
    replica: str = ""
    base: int = 0
    is_stored: bool = False
    norm: float = 0.0
    judged_by: str = ""
    objection: str = ""

    @property
    def staleness(self) -> int:
        return staleness_of(self.round, self.base)


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """A task as one measured run: mean γ of its devices, and of its newest measured version loss and accuracy, in %."""

    task_id: str
    non_iid: float
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Model:
    """A version of one of a task's model lines; version 0 is the initial one.

    `metrics` are means of this version's figures over `devices` devices and `samples` samples; `evaluated` is what the
    publisher's evaluator measured, `agreed` what devices of more than half of the owners have, or better. All are empty
    where nothing was measured.
    """

    task_id: str
    line: int
    version: int
    digest: str
    size_bytes: int
    created_at: float
    metrics: dict[str, float] = field(default_factory=dict)
    devices: int = 0
    samples: float = 0.0
    evaluated: dict[str, float] = field(default_factory=dict)
    agreed: dict[str, float] = field(default_factory=dict)


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
class ReplayedRound:
    """A round's models made again from its stored updates; `note` says why they were not."""

    round: int
    updates: int
    staleness: int
    model_digests: tuple[str, ...]
    replayed_digests: tuple[str, ...] = ()
    note: str = ""

    @property
    def same(self) -> bool:
        return bool(self.model_digests) and self.model_digests == self.replayed_digests


@dataclass(frozen=True, slots=True)
class Contribution:
    """A device's contribution to a number of rounds, in units of the publisher's worth."""

    device_id: str
    rounds: int
    value: float
    error: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Models whose worth is asked for, stored under a digest; without one there is nothing to ask.

    `known` worths of the round are known so far; `ended`: the task is over and nothing is left to ask.
    """

    task_id: str
    round: int = 0
    model_digest: str = ""
    size_bytes: int = 0
    models: int = 0
    known: int = 0
    players: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task with what is counted for it."""

    task: Task
    enrolled: int
    model_digests: tuple[str, ...]
    last_event: int
    better: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round with what is counted for it."""

    round: Round
    participants: int
    delivered: int
    disputed: int = 0
