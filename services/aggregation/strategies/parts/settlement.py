"""Settlement: which conduct is recorded, and what pricing pays for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from coterie.records.enums import Form, ParticipationState
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rounds import JUDGED, witness_pairs
from services.aggregation.strategies.parts.combination import VISIBLE
from services.aggregation.strategies.parts.part import Part


class Settlement(Part):
    """Decisions made when a round settles."""

    has_disputes: ClassVar[bool] = False
    """Whether some devices judge others, which may object."""
    is_evaluated: ClassVar[bool] = False
    """Whether the publisher's evaluator must value a round before it settles."""

    def witnesses(self, participations: Sequence[Participation], number: int) -> list[tuple[str, str]]:
        """Pairs (a, b), a < b, whose conduct in the round is recorded."""
        judged = [p.device_id for p in participations if p.state in JUDGED]
        return witness_pairs(judged, self.specification.seed, number)

    def verified_devices(self, participations: Sequence[Participation]) -> set[str]:
        """Devices whose work the platform itself has verified, beyond its arrival.

        A zero update and a copy show no work, and masked updates are not visible. A member's report counts as far as
        its head's sum contains it: then both ends agree.
        """
        delivered = [p for p in participations if p.state is ParticipationState.DELIVERED]
        holders = Counter(p.digest for p in delivered if p.form in VISIBLE)
        return {
            p.device_id
            for p in delivered
            if p.form is Form.REPORT or (p.form in VISIBLE and p.norm > 0.0 and holders[p.digest] == 1)
        }

    def paid_budget(self, participation: Participation) -> float:
        """The budget or variance that a device is paid for."""
        return participation.budget

    def share(self, participation: Participation, values: Mapping[str, float]) -> float:
        """A device's share of a pot, unnormalised; `values` are contributions, where rounds are evaluated."""
        return participation.weight

    def required_plans(self, participations: Sequence[Participation]) -> set[int]:
        """Versions of the plans that `payoffs` needs."""
        return set()

    def payoffs(
        self, participations: Sequence[Participation], plans: Mapping[int, topology.Plan]
    ) -> pricing.Payoffs | None:
        """The clusters among which pricing divides payoffs; None without clusters."""
        return None
