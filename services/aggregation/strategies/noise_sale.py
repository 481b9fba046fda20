"""Clusters whose members sell privacy: a device that noises its own update may leave out some noise for a price.

[SCFL] clusters with the prices of [MPPFL]. A seat's noise spends ρ₀, which the cluster's payoff is for; on top a device
sells ρ. Those who send their update raw to a head they trust have nothing to sell.
"""

from __future__ import annotations

from coterie.privacy.zcdp import multiplier_of_rho, rho_of_multiplier
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies import strategy
from services.aggregation.strategies.clusters import Clusters
from services.aggregation.strategies.roster import Update


@strategy("clusters", privacy=("trust",), incentive=("stackelberg",))
class NoiseSale(Clusters):
    """Clusters, and a price for those who noise."""

    sells = True

    def check(self) -> None:
        super().check()
        told = self.specification.parameters.get("pricing", {})
        if told.get("curvature"):
            raise BadTask(
                "pricing.curvature is for gradients sold in a star, but this task sells whole updates of clusters; "
                "leave it out, or use the preset market"
            )

    def check_sums(self, rules: SumRules) -> None:
        raise BadTask(
            "sums.mode secure: what a member of a cluster sells is the noise it leaves out, which a sum of all hides; "
            "choose the incentive payoff, or leave sums out"
        )

    def is_quoted(self, seat: topology.Seat) -> bool:
        """Only one that noises its own update, though it may have had an offer before the round was planned anew."""
        return seat.noise_multiplier > 0.0

    def largest_norm(self, update: Update) -> float:
        """Of a device alone that sold a budget: clipped to S, with the noise of ρ₀ + ρ, its seat's and what was sold.

        A head sees the noise of its members; that of a device alone is seen here.
        """
        if not self._sold_alone(update):
            return super().largest_norm(update)
        spent = rho_of_multiplier(update.item.noise_multiplier) + update.delivery.budget
        return noised_norm(self.clip_norm, multiplier_of_rho(spent), update.elements)

    def allowing(self, update: Update) -> str:
        if not self._sold_alone(update):
            return super().allowing(update)
        return f"clipping and a sold budget of {update.delivery.budget:.4g} allow"

    def _sold_alone(self, update: Update) -> bool:
        return update.item.role == words.ROLE_SOLO and update.item.price_microcredits > 0

    @property
    def own_pot(self) -> int:
        """The quote's pot is for what is sold; payoffs share the one the task names."""
        return int(self.prices.get("round_microcredits", 0))
