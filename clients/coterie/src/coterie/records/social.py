"""Interactions, relations, trust, and how far an import of them got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.records.base import Object, Record
from coterie.records.identity import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Record):
    """What was recorded."""

    recorded: int
    """How many were new."""
    repeated_before: int
    """How many had been recorded before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction(Record):
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
    """What it was, such as "delivered" or "meeting"."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation(Record):
    """A social relation between two devices (or owners, for friendship)."""

    kind: str
    """"ownership", "parental", "co-location", "co-work", "social" or "friendship"."""
    a: str
    b: str
    strength: float
    """In [0, 1]."""
    because: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationCounts(Record):
    """How many relations hold now, by kind."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop(Record):
    """One step of a path of trust."""

    from_device: str
    to_device: str
    direct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustExplanation(Record):
    """Trust between two devices and why."""

    device_a: str
    """Who trusts."""
    device_b: str
    """Who is trusted."""
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
    """Time of the last interaction; 0 = none."""
    path: tuple[Hop, ...]
    """Hops of the indirect trust's path, less those the caller may not see."""
    relations: tuple[Relation, ...]
    text: str
    """All this in one paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedPeer(Record):
    """A peer and how far it is trusted."""

    device_id: str
    direct: float
    indirect: float
    trust: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint(Record):
    """Direct trust at one time."""

    at: float
    direct: float
    count: int
    """Interactions until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(Record):
    """A pair that lost trust."""

    device_a: str
    device_b: str
    before: float
    after: float
    because: tuple[Interaction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie(Record):
    """One tie of a trust graph."""

    device_a: str
    device_b: str
    direct: float
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustGraph(Record):
    """Devices and their ties."""

    devices: tuple[Device, ...]
    ties: tuple[Tie, ...]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLinkGraph(Record):
    """The same graph as networkx reads it (`networkx.node_link_graph(document, edges="links")`)."""

    directed: bool
    multigraph: bool
    graph: Object
    nodes: tuple[Object, ...]
    links: tuple[Object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportProgress(Record):
    """How far an import got, all its runs together."""

    last_line: int
    """Last line stored."""
    devices: int
    """Devices made."""
    interactions: int
    """Interactions recorded."""
    relations: int
    """Relations stored."""
