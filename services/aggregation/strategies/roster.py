"""The devices of a round, their letter peers, and a folded update under inspection."""

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


class Peer(NamedTuple):
    """A device that another device exchanges letters with."""

    device_id: str
    role: Role
    weight: float
    trusted: bool
    link_seconds: float = 0.0


@dataclass(slots=True)
class Roster:
    """The devices of a round: their work items, states and reports.

    `samples` are the samples a device enrolled with, `counted` the number of them that counts. `relayed_by` maps a
    device that does not deliver to the platform itself to the device that does; `reports` holds what the latter
    reported: (outcome, note).
    """

    items: dict[str, pb.WorkItem]
    states: dict[str, ParticipationState]
    samples: dict[str, int]
    attempt: int = 1
    relayed_by: dict[str, str] = field(default_factory=dict)
    reports: dict[str, tuple[ParticipationState, str]] = field(default_factory=dict)
    counted: dict[str, float] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)

    def add_new(self, latest: Roster) -> list[str]:
        """Add the devices of the latest roster that are not in this one; return their ids.

        States of the other devices stay; the counted samples of all devices are updated.
        """
        added = [device for device in latest.items if device not in self.items]
        for device in added:
            self.items[device], self.states[device] = latest.items[device], latest.states[device]
            self.samples[device], self.owners[device] = latest.samples[device], latest.owners[device]
        self.counted |= latest.counted
        return added

    def record_reports(self, device_id: str, reports: Iterable[Mapping[str, object]]) -> None:
        """Record what a device reports of the devices it delivers for; ignore reports of other devices."""
        for report in reports:
            other = str(report["device_id"])
            if self.relayed_by.get(other) == device_id:
                self.reports[other] = (ParticipationState(str(report["outcome"])), str(report["note"]))


@dataclass(frozen=True, slots=True)
class Update:
    """A folded update under inspection; a refused one is unfolded.

    Attributes
    ----------
    delivery, roster : the delivery, and the devices of the round.
    layout, read, elements : positions of the update's tensors, its bytes, and the number of elements of the model.
    norm : L2 norm of the update, or of the mean a sum amounts to.
    bound : the largest norm by the usual ones of earlier rounds; infinite without earlier rounds.
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
        """The device's work item."""
        return self.roster.items[self.delivery.device_id]

    @property
    def samples(self) -> int:
        """Samples that the device enrolled with."""
        return self.roster.samples[self.delivery.device_id]
