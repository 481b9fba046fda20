"""Noise sale: clusters whose members may sell a part of their noise.

[SCFL] clusters with the prices of [MPPFL]. An assignment's noise spends ρ₀, which the cluster's payoff covers; on top
the device sells ρ. Members that send their update raw to a trusted head have nothing to sell.
"""

from __future__ import annotations

from coterie.parameters.pricing import StackelbergParameters
from coterie.privacy.zcdp import multiplier_of_rho, rho_of_multiplier
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.plausibility import noised_norm
from services.aggregation.domain.secure_terms import SumRules
from services.aggregation.errors import BadTask
from services.aggregation.strategies.cluster_settlement import ClusterSettlement
from services.aggregation.strategies.clusters import ClusterDelivery, ClusterRoundPlan, Clusters, ClusterTaskCheck
from services.aggregation.strategies.roster import Update


class NoiseSaleTaskCheck(ClusterTaskCheck):
    """Clusters in the clear, at prices of the market's leaders."""

    def require_valid(self) -> None:
        super().require_valid()
        if StackelbergParameters.of(self.specification.parameters).curvature:
            raise BadTask(
                "pricing.curvature is for gradients sold in a star, but this task sells whole updates of clusters; "
                "leave it out, or use the preset market"
            )

    def require_secure_sums(self, rules: SumRules) -> None:
        raise BadTask(
            "sums.mode secure: a member of a cluster sells the noise it leaves out, which the sum hides; choose the "
            "incentive payoff, or leave sums out"
        )


class NoiseSaleRoundPlan(ClusterRoundPlan):
    """Prices for devices that add noise."""

    sends_offers = True

    def is_quoted(self, assignment: topology.Assignment) -> bool:
        """Only a device that noises its own update, even if it had an offer in an earlier plan of the round."""
        return assignment.noise_multiplier > 0.0


class NoiseSaleDelivery(ClusterDelivery):
    """Checks the sold noise of devices alone; heads check that of their members."""

    def norm_limit(self, update: Update) -> float:
        """For a device alone that sold a budget ρ: clip norm S with the noise of ρ₀ + ρ."""
        if not _is_sold_alone(update):
            return super().norm_limit(update)
        spent = rho_of_multiplier(update.item.noise_multiplier) + update.delivery.budget
        return noised_norm(self.terms.clip_norm, multiplier_of_rho(spent), update.elements)

    def norm_limit_reason(self, update: Update) -> str:
        if not _is_sold_alone(update):
            return super().norm_limit_reason(update)
        return f"clipping and a sold budget of {update.delivery.budget:.4g} allow"


class NoiseSaleSettlement(ClusterSettlement):
    """Two pots: the quote's for sold noise, the task's for payoffs."""

    @property
    def pot_microcredits(self) -> int:
        return self.prices.round_microcredits


class NoiseSale(Clusters):
    """Clusters, and a price for the devices that add noise."""

    privacies = ("trust",)
    incentives = ("stackelberg",)
    preset = ""

    task_check_class = NoiseSaleTaskCheck
    round_plan_class = NoiseSaleRoundPlan
    delivery_class = NoiseSaleDelivery
    settlement_class = NoiseSaleSettlement


def _is_sold_alone(update: Update) -> bool:
    return update.item.role == words.ROLE_SOLO and update.item.price_microcredits > 0
