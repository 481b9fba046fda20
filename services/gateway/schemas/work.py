"""Work, updates and letters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Amount, Answer, Body, Finite, Fraction, Id, Int32, Object, Prose, Word


class Peer(Answer):
    """Somebody a device works with in a round."""

    device_id: str
    role: str
    signing_key: str
    sealing_key: str
    weight: float
    trusted: bool
    """Whether raw parameters may be sent over this tie."""
    link_seconds: float


class WorkItem(Answer):
    """What a device is to do."""

    task_id: str
    round: int
    attempt: int
    role: str
    """"solo", "head", "member", "peer" or "idle"."""
    model_digests: list[str]
    """Model to start from, per model line the device may choose from."""
    model_lines: list[int]
    previous_digests: list[str]
    deadline_at: float
    plan_version: int
    noise_multiplier: float
    noised: bool
    batch_size: int
    self_weight: float
    peers: list[Peer]
    price_microcredits: int
    external_risk: float
    base_microcredits: int
    slope_microcredits: int
    training: Object
    parameters: Object
    privacy_unit: str
    topology: str
    privacy: str
    incentive: str
    max_update_bytes: int
    rounds: int


class Work(Answer):
    """Work, or how long to wait before asking again."""

    items: list[WorkItem]
    """At most one per task."""
    retry_after_seconds: float
    ended: dict[str, str]
    """Tasks asked about that have ended, with their state."""


class PrivacyCharge(Body):
    """One use of a privacy mechanism."""

    mechanism: Literal["gaussian", "laplace", "zcdp"]
    parameter: Amount
    """Noise multiplier (gaussian), ε (laplace) or ρ (zcdp)."""
    unit: Literal["example", "device"]
    sampling_rate: Fraction = 0.0
    """Fraction of the data used; 0 or 1 = all."""
    steps: Int32 = 0
    """Repetitions; 0 means 1."""


class MemberReport(Body):
    """How a member did, as its head saw it."""

    device_id: Id
    outcome: Literal["delivered", "dropped", "rejected"]
    note: Prose = ""
    weight: Amount = 0.0


class UpdateReport(Body):
    """What comes with an update, as the JSON text of the header `Coterie-Update`."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"form": "mean", "weight": 150, "metrics": {"accuracy": 0.91, "loss": 0.3}}}
    )

    form: Literal["mean", "sum", "report"] = "mean"
    """"mean": the model's change; "sum": an un-normalised weighted sum; "report": no tensors, metrics only."""
    weight: Amount = 0.0
    """Samples, quality, or the sum's total weight."""
    metrics: Annotated[dict[Word, Finite], Field(default_factory=dict, max_length=32)]
    model_index: Int32 = 0
    budget: Amount = 0.0
    """zCDP budget or noise variance it chose; 0 = none."""
    privacy: Annotated[list[PrivacyCharge], Field(default_factory=list, max_length=64)]
    members: Annotated[list[MemberReport], Field(default_factory=list, max_length=10_000)]


class UpdateOutcome(Answer):
    """What became of an update."""

    outcome: Literal["accepted", "repeated", "late"]
    """"repeated": stored before; "late": the round was over, nothing changed."""
    round: int
    """Round the task is in now."""


class Decline(Body):
    """Why a device declines."""

    model_config = ConfigDict(json_schema_extra={"example": {"why": "privacy limit reached"}})

    why: Prose = ""


class Letter(Answer):
    """A sealed letter."""

    id: str
    task_id: str
    round: int
    plan_version: int
    sender: str
    recipient: str
    kind: str
    digest: str
    size_bytes: int
    sent_at: float


class Letters(Answer):
    """Letters not known yet, and whether more can come."""

    items: list[Letter]
    round_state: str
    """"open" while more can come."""
    gone: list[str]
    """Devices that will send nothing more this round."""
