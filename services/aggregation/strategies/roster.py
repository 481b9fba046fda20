"""Everybody in a round, whom each exchanges letters with, and an update as a strategy looks at it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coterie.records.enums import ParticipationState, Role
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.accumulator import Read
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.records import Delivery


class Tie(NamedTuple):
    """Somebody a device exchanges letters with."""

    device_id: str
    role: Role
    weight: float
    trusted: bool
    link_seconds: float = 0.0


@dataclass(slots=True)
class Roster:
    """Everybody in a round: what each was told to do, where each stands, and what was heard of it.

    `samples` are those a device enrolled with, `counted` what counts of them. `via` names for a device whose work
    reaches the platform through another that other one; `heard` is what the other reported of it: (outcome, note).
    """

    items: dict[str, pb.WorkItem]
    states: dict[str, ParticipationState]
    samples: dict[str, int]
    attempt: int = 1
    via: dict[str, str] = field(default_factory=dict)
    heard: dict[str, tuple[ParticipationState, str]] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)

    def join(self, everybody: Roster) -> list[str]:
        """Takes in those of a fresh roster that are not in this one yet; who they are.

        Where the others stand is known here and stays; how much counts of their samples is known by all of them.
        """
        fresh = [device for device in everybody.items if device not in self.items]
        for device in fresh:
            self.items[device], self.states[device] = everybody.items[device], everybody.states[device]
            self.samples[device], self.owners[device] = everybody.samples[device], everybody.owners[device]
        self.counted |= everybody.counted
        return fresh

    def hear(self, device_id: str, reports: Iterable[Mapping[str, object]]) -> None:
        """Takes note of what a device reports of those it delivers for; of others its word counts for nothing."""
        for report in reports:
            other = str(report["device_id"])
            if self.via.get(other) == device_id:
                self.heard[other] = (ParticipationState(str(report["outcome"])), str(report["note"]))


@dataclass(frozen=True, slots=True)
class Update:
    """A delivered update as it was folded, to be looked at: one refused is unfolded.

    Attributes
    ----------
    delivery, roster : what came, and everybody in the round.
    layout, read, elements : where the update's tensors lie, its bytes, and how many numbers the model has.
    norm : L2 norm of the update, or of the mean a sum amounts to.
    bound : the longest update taken by what was usual in earlier rounds; infinite when there were none.
    """

    delivery: Delivery
    roster: Roster
    layout: Layout
    read: Read
    elements: int
    norm: float
    bound: float = math.inf

    @property
    def item(self) -> pb.WorkItem:
        """What the device was told."""
        return self.roster.items[self.delivery.device_id]

    @property
    def samples(self) -> int:
        """The samples it enrolled with."""
        return self.roster.samples[self.delivery.device_id]
