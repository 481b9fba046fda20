"""Round progress: which devices are in an open round, and what their states amount to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from coterie.records.enums import ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.records import Participation
from services.aggregation.strategies.parts.part import Part
from services.aggregation.strategies.roster import Roster


class RoundProgress(Part):
    """Decisions made while a round is open.

    A *relay* is a device through which other devices deliver, such as the head of a cluster.
    """

    relay_timeout_share: ClassVar[float] = 1.0
    """Share of a round's time after which a relay that has not delivered is lost."""
    lost_relay_note: ClassVar[str] = "other devices waited for it in vain"
    """Note on the participation of a lost relay."""

    def relays(self, items: Mapping[str, pb.WorkItem]) -> dict[str, str]:
        """The relay of each device that does not deliver to the platform itself."""
        return {}

    def build_roster(self, participations: Sequence[Participation], attempt: int) -> Roster:
        """Build the roster of a round from its stored participations."""
        items = {p.device_id: pb.WorkItem.FromString(p.work) for p in participations}
        states = {p.device_id: p.state for p in participations}
        samples = {p.device_id: p.samples for p in participations}
        owners = {p.device_id: p.owner_id for p in participations}
        counted = self.terms.bounds.counted(samples, owners)
        roster = Roster(items, states, samples, attempt, self.relays(items), counted=counted, owners=owners)
        for p in participations:
            if p.state is ParticipationState.DELIVERED:
                roster.record_reports(p.device_id, p.members)
        return roster

    def effective_state(self, roster: Roster, device_id: str) -> ParticipationState:
        """A device's state, its relay's taken into account."""
        return roster.states[device_id]

    def visible_devices(self, roster: Roster) -> list[str]:
        """Devices whose delivered content the server sees; the task's rule combines these."""
        return [device for device, state in roster.states.items() if state is ParticipationState.DELIVERED]

    def lost_relays(self, roster: Roster, *, overdue: bool, unreachable: Collection[str]) -> dict[str, list[str]]:
        """Relays that will not deliver, each with the devices it leaves behind; the round reopens for these."""
        return {}

    def quorum(self, quorum: int, states: Sequence[ParticipationState]) -> int:
        """How many devices must deliver in a round that opened with `quorum` and is now in `states`."""
        return quorum
