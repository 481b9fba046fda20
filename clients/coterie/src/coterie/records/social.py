"""Interactions, relations, trust, and the progress of an import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.records.base import Object, Record
from coterie.records.enums import InteractionState, RelationKind
from coterie.records.identity import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(Record):
    """What was recorded."""

    recorded: int
    """How many were new."""
    repeated_before: int
    """How many had been recorded before."""
    unconfirmed: int = 0
    """How many of the new ones count only when the other end reports them too."""


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
    state: InteractionState = InteractionState.COUNTED
    """Whether it counts as evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation(Record):
    """A social relation between two devices (or owners, for friendship)."""

    kind: RelationKind
    """"ownership", "parental", "co-location", "co-work", "social", "social-public" or "friendship"."""
    a: str
    b: str
    strength: float
    """In [0, 1]."""
    because: str
    since: float
    confirmed: bool = True
    """Whether it holds; false for a friendship that only one owner has declared."""


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
class TrustRule(Record):
    """The registry's settings: what counts as evidence, and how much."""

    halving_days: float
    """Days in which evidence halves; 0 = never."""
    penalty: float
    """How many good interactions a bad one outweighs."""
    full_seconds: float
    """Duration from which an interaction counts fully."""
    direct_weight: float
    """Share of direct trust in combined trust."""
    prior_weight: float
    """How many meetings knowing nothing weighs."""
    witness_cap: float
    """What direct trust rounds done well together alone can lift a pair to."""
    pair_day: float
    """Interactions of each sign that count for a pair in one day."""
    reporter_day: float
    """Bad interactions of one reporter that count in one day."""
    meeting_window_seconds: float
    """How far apart the two ends' times of one meeting may lie."""
    confirm_days: float
    """How long the second report of a meeting is waited for."""


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
    unconfirmed_count: int = 0
    """Good interactions that one end reported and the other may still confirm."""
    rule: TrustRule | None = None
    """What the registry demands of evidence."""


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
    relations: tuple[RelationKind, ...]


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
