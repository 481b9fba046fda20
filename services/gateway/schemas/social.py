"""Interactions, relations and trust."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from services.gateway.schemas.base import Amount, Answer, Body, Extended, Fraction, Id, Name, Prose, Time, Word
from services.gateway.schemas.identity import Device

RelationKind = Literal["ownership", "parental", "co-location", "co-work", "social", "friendship"]


class NewInteraction(Body):
    """One thing two devices did together, as the reporter saw it."""

    id: Name
    """Chosen by the reporter; repeats are ignored."""
    device_a: Id
    device_b: Id
    positive: bool
    duration_seconds: Amount = 0.0
    at: Time
    kind: Word = ""
    """What it was, such as "meeting"."""
    note: Prose = ""


class NewInteractions(Body):
    """Interactions to record; a batch with a bad item is refused whole."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "interactions": [
                    {
                        "id": "meeting-17",
                        "device_a": "dev_01jd0d",
                        "device_b": "dev_01jd0f",
                        "positive": True,
                        "duration_seconds": 240.0,
                        "at": 1767225600.0,
                        "kind": "meeting",
                    }
                ]
            }
        }
    )

    interactions: Annotated[list[NewInteraction], Field(min_length=1, max_length=10_000)]


class Recorded(Answer):
    """What was recorded."""

    recorded: int
    """How many were new."""
    repeated_before: int
    """How many had been recorded before."""


class Interaction(Answer):
    """A recorded interaction."""

    id: str
    device_a: str
    device_b: str
    positive: bool
    duration_seconds: float
    at: float
    reporter: str
    """A device's id, or "platform"."""
    kind: str
    note: str


class Relation(Answer):
    """A social relation between two devices (or owners, for friendship)."""

    kind: str
    a: str
    b: str
    strength: float
    because: str
    since: float


class Friendship(Body):
    """How close two owners are; 0 withdraws the friendship."""

    model_config = ConfigDict(json_schema_extra={"example": {"strength": 0.8}})

    strength: Fraction


class Derivation(Body):
    """Which relations to derive anew."""

    model_config = ConfigDict(json_schema_extra={"example": {"kinds": ["ownership", "co-location"]}})

    kinds: Annotated[list[RelationKind], Field(default_factory=list, max_length=6)]
    """Empty means all."""


class RelationCounts(Answer):
    """How many relations hold now, by kind."""

    counts: dict[str, int]


class Hop(Answer):
    """One step of a path of trust."""

    from_device: str
    to_device: str
    direct: float


class TrustExplanation(Answer):
    """Trust between two devices and why."""

    device_a: str
    device_b: str
    at: float
    direct: float
    """In [0, 1]."""
    indirect: float
    """In [0, 1]; 0 when no path exists."""
    trust: float
    """Combined, in [0, 1]."""
    positive_count: int
    negative_count: int
    positive_sum: float
    """Decayed sum of clipped positive durations."""
    negative_sum: float
    """Decayed sum of clipped negative durations, before the penalty."""
    last_at: float
    path: list[Hop]
    relations: list[Relation]
    text: str


class TrustedPeer(Answer):
    """A peer and how far it is trusted."""

    device_id: str
    direct: float
    indirect: float
    trust: float


class HistoryPoint(Answer):
    """Direct trust at one time."""

    at: float
    direct: float
    count: int


class Loss(Answer):
    """A pair that lost trust."""

    device_a: str
    device_b: str
    before: float
    after: float
    because: list[Interaction]


class Tie(Answer):
    """One tie of a trust graph."""

    device_a: str
    device_b: str
    direct: float
    relations: list[str]


class TrustGraph(Answer):
    """Devices and their ties."""

    devices: list[Device]
    ties: list[Tie]
    at: float


class NodeLinkGraph(Answer):
    """The same graph as networkx reads it (`networkx.node_link_graph(document, edges="links")`)."""

    directed: bool
    multigraph: bool
    graph: dict[str, Any]
    nodes: list[dict[str, Any]]
    links: list[dict[str, Any]]


class TaskPrivacy(Answer):
    """Privacy spent in one task."""

    task_id: str
    rounds: int
    epsilon: Extended
    """Composed over the task at the report's δ; "inf" = no noise was added."""
    unit: str


class PrivacyReport(Answer):
    """Privacy a device spent."""

    device_id: str
    delta: float
    epsilon: Extended
    """Composed over all tasks."""
    tasks: list[TaskPrivacy]
