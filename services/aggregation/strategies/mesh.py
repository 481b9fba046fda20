"""Mesh: devices mix their parameters with their planned neighbours'; the platform carries letters and gets figures.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things. A device's model stays with it,
so that a round has no sum: it is over when enough have reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.records.enums import Form, Role
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.layout import Layout
from services.aggregation.domain.records import Participation
from services.aggregation.domain.rules.choice import Choice
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies import strategy
from services.aggregation.strategies.base import Strategy
from services.aggregation.strategies.roster import Tie


@strategy("mesh", privacy=("partial", "none"), preset="mesh", why={"partial": "it noises planned devices"})
class Mesh(Strategy):
    """Letters between neighbours, reports to the platform."""

    form = Form.REPORT
    in_step = "in a mesh neighbours mix the models of the same round, and the server steps none"

    def check_model(self, layout: Layout) -> None:
        """Any will do: what has no gradients stays on the device."""

    def check(self) -> None:
        super().check()
        if self.specification.training.get("proximal"):
            raise BadTask(
                "training.proximal pulls to the round's model, which a mesh has none of: every device steps its own; "
                "leave it out, or choose the topology star, clusters or cells"
            )

    def check_rule(self, choice: Choice) -> None:
        if not choice.is_plain:
            raise BadTask(
                f"rule {choice.name}: in a mesh devices mix among themselves and the server sees no update; "
                "leave the rule out, or choose the topology star or clusters"
            )

    def check_sums(self, rules: SumRules) -> None:
        raise BadTask(
            "sums.mode secure: in a mesh devices mix among themselves and there is no common sum; leave sums out, or "
            "choose the topology star or clusters"
        )

    def proved(self, everybody: Sequence[Participation]) -> set[str]:
        """A report only shows that a device was there: the platform cannot read the letters it wrote."""
        return set()

    def ties(self, seat: topology.Seat, seats: Mapping[str, topology.Seat]) -> list[Tie]:
        return [Tie(n.device_id, Role.PEER, n.weight, n.trusted, n.link_seconds) for n in seat.neighbours]
