"""Plans, base stations and scheduling policies."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records.base import Object, Record
from coterie.records.enums import PolicyLearner, PolicyNetwork, PolicyPenalty, PolicyState, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour(Record):
    """A link of an assignment to a neighbour (mesh)."""

    device_id: str
    weight: float
    """Mixing weight of what it sends, in (0, 1)."""
    trusted: bool
    """Whether raw parameters may be sent over this link."""
    link_seconds: float
    """Planned seconds to transfer one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Record):
    """One participant's place in a plan."""

    device_id: str
    role: Role
    """"solo" (uploads its own update), "head", "member", "peer" (mesh) or "idle" (not served this round)."""
    group: int
    """Cluster or cell number; -1 = none."""
    head_device_id: str
    """Head of its cluster; empty when none."""
    noise_multiplier: float
    """Of Gaussian noise: standard deviation over clip norm; 0 = none."""
    weight: float
    """Combining weight of its update (quality); 0 = by samples."""
    batch_size: int
    """Of a mesh device; 0 = its own choice."""
    neighbours: tuple[Neighbour, ...]
    self_weight: float
    """Own mixing weight (mesh)."""
    noised: bool
    """Whether it adds Laplace noise (mesh)."""
    payoff: float
    """Expected payoff, credits (clusters)."""
    because: str
    """Why it sits here."""
    block: int
    """Radio block it is served on (cells); -1 = none."""
    upload_seconds: float
    """Seconds to upload over that block (cells)."""
    solo_payoff: float = 0.0
    """What it would be worth alone, in points of payoff (clusters)."""
    cell: str = ""
    """Cell it is served by (cells); empty = none."""
    solo_weight: float = 0.0
    """Weight of its update if it is the only one, noised as one alone does (clusters); 0 = `weight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameParameters(Record):
    """What quality earns and clusters cost, in points of payoff."""

    price: float
    """For each unit of quality."""
    member_cost: float
    """Each device in a cluster costs it."""
    head_reward: float
    """The head gets besides its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Record):
    """Who exchanges updates with whom."""

    task_id: str
    version: int
    """From 1, growing with every change."""
    topology: str
    """"star", "clusters", "mesh" or "cells"."""
    created_at: float
    assignments: tuple[Assignment, ...]
    round_seconds: float
    """Planned seconds of one round; 0 = not predicted."""
    details: Object
    """Everything else the planner found."""
    game_parameters: GameParameters | None = None
    """What the plan was played for (clusters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Record):
    """A base station."""

    id: str
    x_metres: float
    y_metres: float
    blocks: int
    """Resource blocks."""
    power_watts: float
    """Transmit power of a device on a block."""
    bandwidth_hertz: float
    """Bandwidth of a block."""
    delay_limit_seconds: float
    """Delay limit of an upload."""
    models: tuple[int, ...]
    """Models it handles; empty means all."""
    radius_metres: float
    station: bool = False
    """Whether a separate station process serves it now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(Record):
    """A scheduling policy."""

    id: str
    learner: PolicyLearner
    """"vdn" or "iql"."""
    layout: str
    """Fingerprint of the layout it was trained for."""
    state: PolicyState
    """"training", "ready" or "failed"."""
    progress: float
    """Fraction trained, in [0, 1]."""
    reward: float
    """Mean greedy reward at the last checkpoint."""
    created_at: float
    reason: str
    """Why it failed; empty otherwise."""
    network: PolicyNetwork = PolicyNetwork.POINTER
    """What it values decisions with: "pointer", a score for each device, or "set", one for each set of them."""
    penalty: PolicyPenalty = PolicyPenalty.DYNAMIC
    """What breaking a limit cost it in training: "dynamic", growing with how many break it, or "fixed"."""
