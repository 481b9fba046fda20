"""Mesh: devices mix their parameters with their planned neighbours'; the platform carries letters and gets metrics.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things. A device's model stays on the
device, so a round has no sum: it ends when enough devices have reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from coterie.records.enums import Form, Role
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.parts.delivery import DeliveryPolicy
from services.aggregation.strategies.parts.round_plan import RoundPlan
from services.aggregation.strategies.parts.settlement import Settlement
from services.aggregation.strategies.parts.task_check import TaskCheck
from services.aggregation.strategies.roster import Peer


class MeshTaskCheck(TaskCheck):
    """Neither secure sums nor rules: the server sees no update."""

    lockstep_reason = "in a mesh neighbours mix the models of the same round, and the server steps none"

    def require_model(self, layout: Layout) -> None:
        """Accept every model: tensors without gradients stay on the device."""

    def require_valid(self) -> None:
        super().require_valid()
        if self.specification.training.get("proximal"):
            raise BadTask(
                "training.proximal pulls to the round's model, which a mesh has none of: every device steps its own; "
                "leave it out, or choose the topology star, clusters or cells"
            )

    def require_rule(self, choice: Choice) -> None:
        if not choice.is_plain:
            raise BadTask(
                f"rule {choice.name}: in a mesh devices mix among themselves and the server sees no update; "
                "leave the rule out, or choose the topology star or clusters"
            )

    def require_secure_sums(self, rules: SumRules) -> None:
        raise BadTask(
            "sums.mode secure: in a mesh devices mix among themselves and there is no common sum; leave sums out, or "
            "choose the topology star or clusters"
        )


class MeshRoundPlan(RoundPlan):
    """Letters between neighbours."""

    def peers(self, assignment: topology.Assignment, assignments: Mapping[str, topology.Assignment]) -> list[Peer]:
        return [Peer(n.device_id, Role.PEER, n.weight, n.trusted, n.link_seconds) for n in assignment.neighbours]


class MeshDelivery(DeliveryPolicy):
    """Reports only."""

    form = Form.REPORT


class MeshSettlement(Settlement):
    """Payment by report."""

    def verified_devices(self, participations: Sequence[Participation]) -> set[str]:
        """None: a report shows that a device was there, and the platform cannot read its letters."""
        return set()


class Mesh(Strategy):
    """Letters between neighbours, reports to the platform."""

    topology = "mesh"
    privacies = ("partial", "none")
    preset = "mesh"
    reasons = MappingProxyType({"partial": "it noises planned devices"})

    task_check_class = MeshTaskCheck
    round_plan_class = MeshRoundPlan
    delivery_class = MeshDelivery
    settlement_class = MeshSettlement
