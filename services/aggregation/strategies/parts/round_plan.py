"""Round plan: who works in a round, with whom, and with which parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from google.protobuf.struct_pb2 import Struct

from coterie.records.enums import ParticipationState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.strategies.parts.part import Part
from services.aggregation.strategies.roster import Peer, Roster
from services.kit.rpc.parameters import fill_struct, struct_of


class RoundPlan(Part):
    """Decisions made when a round opens."""

    sends_offers: ClassVar[bool] = False
    """Whether a device receives its own offer and decides by it."""

    @property
    def fits_quality(self) -> bool:
        """Whether plans use a quality model fitted to the publisher's measurements of earlier tasks."""
        return False

    def adapt(self, plan: topology.Plan) -> topology.Plan:
        """Return the plan as the round carries it out."""
        return plan

    def replanned_devices(self, roster: Roster, chosen: Sequence[str], orphans: Collection[str]) -> list[str]:
        """The chosen devices that a reopened round plans for; `orphans` lost the device they delivered through."""
        return list(chosen)

    def is_reassigned(self, state: ParticipationState | None) -> bool:
        """Whether a replanned device in this state gets new work; None = it was not in the round."""
        return state is not ParticipationState.DELIVERED

    def is_quoted(self, assignment: topology.Assignment) -> bool:
        """Whether an assignment is offered a price."""
        return True

    def peers(self, assignment: topology.Assignment, assignments: Mapping[str, topology.Assignment]) -> list[Peer]:
        """The devices that an assignment's device exchanges letters with."""
        return []

    def work_parameters(self, offer: pricing.Offer) -> Struct:
        """The task's parameters for one device; with its offer where `sends_offers`."""
        message = struct_of(self.specification.parameters_json)
        if self.sends_offers:
            fill_struct(message.fields["offer"].struct_value, _offer(offer), "parameters.offer")
        return message

    def largest_weight(self, plan: topology.Plan, counted: Mapping[str, float]) -> float:
        """The largest weight of an update under this plan; the round's sums leave room for it."""
        return largest_weight(plan, counted)


def largest_weight(plan: topology.Plan, counted: Mapping[str, float]) -> float:
    """The largest of the counted samples and the planned weights, at least 1."""
    return max(float(max(counted.values(), default=1)), *(assignment.weight for assignment in plan.assignments), 1.0)


def _offer(offer: pricing.Offer) -> dict[str, Any]:
    """What a device that sells decides by, as `OfferParameters` reads it."""
    terms: dict[str, Any] = {}
    if offer.HasField("terms"):
        terms = {
            "others_variance": offer.terms.others_variance,
            "variance_low": offer.terms.variance_low,
            "variance_high": offer.terms.variance_high,
            "trust": list(offer.terms.trust),
            "hidden": list(offer.terms.hidden),
        }
    return {"expected": offer.expected, "most_microcredits": offer.most_microcredits, **terms}
