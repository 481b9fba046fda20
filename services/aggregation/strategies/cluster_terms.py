"""Clusters: terms and readings of rosters that the parts of the cluster strategies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.records.enums import ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.records import Delivery, Participation
from services.aggregation.domain.trust_noise import TrustNoise
from services.aggregation.strategies.parts.terms import TaskTerms
from services.aggregation.strategies.roster import Roster

HOPEFUL = (ParticipationState.ASSIGNED, ParticipationState.DELIVERED)
"""States of members whose work may come to count."""


class ClusterTerms(TaskTerms):
    """Terms of clusters."""

    @property
    def is_rewarded(self) -> bool:
        """True: heads check their members for free rides, so the platform checks all others, paid or not."""
        return True

    @property
    def trusts(self) -> bool:
        """Whether a device's noise depends on its trust."""
        return self.specification.privacy == "trust"

    @property
    def trust_noise(self) -> TrustNoise:
        """The map from trust to noise, where noise depends on trust."""
        return TrustNoise.of(self.specification.parameters)


def heads_of(items: Mapping[str, pb.WorkItem]) -> dict[str, str]:
    """The head of every member, by the members' work items."""
    return {
        device: peer.device_id
        for device, item in items.items()
        if item.role == words.ROLE_MEMBER
        for peer in item.peers
        if peer.role == words.ROLE_HEAD
    }


def effective_state(roster: Roster, device_id: str) -> ParticipationState:
    """A member is "assigned" until its head has delivered, whatever it has reported itself.

    A member whose head delivered without it is "dropped" or "rejected", one whose head is lost "orphaned".
    """
    state, head = roster.states[device_id], roster.relayed_by.get(device_id, "")
    if not head or state not in HOPEFUL:
        return state
    if roster.states.get(head) is ParticipationState.ASSIGNED:
        return ParticipationState.ASSIGNED
    if roster.states.get(head) is not ParticipationState.DELIVERED:
        return ParticipationState.ORPHANED
    outcome = roster.reports.get(device_id, (ParticipationState.DROPPED, ""))[0]
    return state if outcome is ParticipationState.DELIVERED else outcome


def claimed_members(delivery: Delivery) -> list[str]:
    """Members that a head reports as part of its sum."""
    return sorted(
        str(report["device_id"]) for report in delivery.members if report["outcome"] is ParticipationState.DELIVERED
    )


def delivered_items(participations: Sequence[Participation]) -> dict[str, pb.WorkItem]:
    """The work items of the devices that delivered."""
    return {
        p.device_id: pb.WorkItem.FromString(p.work) for p in participations if p.state is ParticipationState.DELIVERED
    }
