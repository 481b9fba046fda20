"""Inputs of a round's plan: which devices take part, and which are excluded."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from coterie.records.enums import ParticipationState
from coterie_api.trust.v1 import trust_pb2 as trust
from services.aggregation.domain.bounds import Bounds
from services.aggregation.domain.records import Enrolment, Model, Participation, Round
from services.aggregation.domain.tasks import TaskSpecification

SEVERAL = 2
"""Owners that must dispute a head's verdicts to disqualify it; all devices of one owner count once."""


def without_silent(
    devices: dict[str, trust.Device],
    enrolled: list[Enrolment],
    earlier: list[Participation],
    last: Round | None,
    spec: TaskSpecification,
) -> dict[str, trust.Device]:
    """Return the devices without those that did not deliver in the last round nor send a heartbeat since it opened.

    They return with their next heartbeat, so a dead device delays two rounds at most. If too few devices would be left,
    return all.
    """
    if last is None:
        return devices
    states = {p.device_id: p.state for p in earlier}
    chosen_by_lot = spec.draws
    missed = {
        e.device_id
        for e in enrolled
        if states.get(e.device_id) is ParticipationState.DROPPED
        or (e.device_id not in states and not chosen_by_lot and e.enrolled_at < last.opened_at)
    }
    heard = {d: v for d, v in devices.items() if d not in missed or v.last_seen_at >= last.opened_at}
    return heard if len(heard) >= spec.min_devices else devices


def disputed_heads(disputes: Mapping[str, Collection[str]], devices: Mapping[str, trust.Device]) -> set[str]:
    """Return heads whose verdicts devices of `SEVERAL` other owners disputed: they lead no cluster of the task."""
    return {
        head
        for head, owners in disputes.items()
        if head in devices and len(set(owners) - {devices[head].owner_id}) >= SEVERAL
    }


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """Devices to plan for, their registry records, and the models they start from.

    `verdicts` are the heads' judgements of members in the last round.
    """

    assignments: list[Enrolment]
    devices: dict[str, trust.Device]
    current: list[Model]
    previous: list[Model]
    bounds: Bounds
    norm_bounds: dict[str, float]
    verdicts: dict[str, str]
    _counted: dict[str, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        owners = {device: self.devices[device].owner_id for device in self.samples}
        object.__setattr__(self, "_counted", self.bounds.counted(self.samples, owners))

    @property
    def samples(self) -> dict[str, int]:
        return {assignment.device_id: assignment.samples for assignment in self.assignments}

    def counted(self) -> dict[str, float]:
        """Return how many samples of each device count."""
        return self._counted


def key_of(devices: Collection[str], alone: Collection[str] = ()) -> str:
    """Return a key for a set of devices, and those of them planned alone."""
    who = "\n".join([*sorted(devices), "", *sorted(alone)])
    return hashlib.sha256(who.encode()).hexdigest()[:16]
