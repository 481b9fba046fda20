"""Asynchronous rounds: the server steps whenever K updates have come, each weighed by how stale it is.

J. Nguyen and others, "Federated learning with buffered asynchronous aggregation" (FedBuff), AISTATS 2022. An update
made from version u of the model that comes when the model is at version v has staleness τ = v − u and counts
s(τ) = (1 + τ)^−a as much as a fresh one. A step is Σ w·s(τ)·Δ / Σ w over the K updates: what staleness takes away is
not made up for by the others, so a stale buffer takes a shorter step.

Everything follows from the log of arrivals: which version each made, and with which weights. Weights are rounded to
whole units before they are used, so that a replay of the log has the same bits on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

UNIT = 2.0**-30
"""Staleness weights are whole multiples of this."""


@dataclass(frozen=True, slots=True)
class Buffering:
    """How arrivals become steps.

    Attributes
    ----------
    size : K, accepted updates for a step; at least 1.
    exponent : a of (1 + τ)^−a; 0 makes all equal.
    limit : largest staleness that is taken; staler updates are refused, with the reason.
    """

    size: int
    exponent: float = 0.5
    limit: int = 20

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"buffer: must be at least 1, not {self.size}")
        if not 0 <= self.exponent <= 10:
            raise ValueError(f"staleness_exponent: must be from 0 to 10, not {self.exponent}")
        if self.limit < 0:
            raise ValueError(f"staleness_limit: must be at least 0, not {self.limit}")

    def discount(self, staleness: int) -> float:
        """s(τ), a whole multiple of UNIT above 0."""
        return max(round(math.pow(1.0 + staleness, -self.exponent) / UNIT), 1) * UNIT


@dataclass(frozen=True, slots=True)
class Arrival:
    """An update as it came: from whom, made from which version, with which weight of its own."""

    device_id: str
    version: int
    digest: str
    weight: float


@dataclass(frozen=True, slots=True)
class Accepted:
    """An arrival that counts: `share` = weight·s(τ) is what it is folded with."""

    arrival: Arrival
    staleness: int
    share: float


@dataclass(frozen=True, slots=True)
class Refused:
    """An arrival that does not count, and why."""

    arrival: Arrival
    why: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the model to `version`: Σ share·Δ / `weight`."""

    version: int
    updates: tuple[Accepted, ...]

    @property
    def weight(self) -> float:
        """Σ of the updates' own weights, without what staleness takes away."""
        return sum(update.arrival.weight for update in self.updates)


@dataclass(slots=True)
class Buffer:
    """The buffer of one task: the version the model is at, and what came since it was made."""

    rule: Buffering
    version: int = 0
    waiting: list[Accepted] = field(default_factory=list)

    def offer(self, arrival: Arrival) -> Accepted | Refused:
        """Takes an arrival into the buffer, or says why not; `step` then says whether the model moves."""
        staleness = self.version - arrival.version
        if staleness < 0:
            return Refused(arrival, f"version {arrival.version} does not exist yet; the model is at {self.version}")
        if staleness > self.rule.limit:
            return Refused(
                arrival,
                f"made from version {arrival.version}, {staleness} behind the model; at most {self.rule.limit} are "
                "taken: fetch the newest version and train again",
            )
        if any(update.arrival.device_id == arrival.device_id for update in self.waiting):
            return Refused(arrival, f"{arrival.device_id} has an update in the buffer already; wait for the next step")
        accepted = Accepted(arrival, staleness, arrival.weight * self.rule.discount(staleness))
        self.waiting.append(accepted)
        return accepted

    def step(self) -> Step | None:
        """The step that a full buffer makes; the buffer is empty after it."""
        if len(self.waiting) < self.rule.size:
            return None
        self.version += 1
        taken = tuple(sorted(self.waiting, key=lambda update: update.arrival.device_id))
        self.waiting.clear()
        return Step(self.version, taken)


def replay(rule: Buffering, log: Iterable[Arrival]) -> tuple[list[Step], list[Refused], Buffer]:
    """What a log of arrivals made: every step, what was refused, and the buffer as it is left."""
    buffer = Buffer(rule)
    steps: list[Step] = []
    refused: list[Refused] = []
    for arrival in log:
        answer = buffer.offer(arrival)
        if isinstance(answer, Refused):
            refused.append(answer)
        elif (made := buffer.step()) is not None:
            steps.append(made)
    return steps, refused, buffer
