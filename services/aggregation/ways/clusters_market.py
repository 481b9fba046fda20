"""Clusters whose members sell privacy: a device that noises its own update may leave out some noise for a price.

[SCFL] clusters with the prices of [MPPFL]. A seat's noise spends ρ₀, which the cluster's payoff is for; on top a device
sells ρ. Those who send their update raw to a head they trust have nothing to sell.
"""

from __future__ import annotations

from coterie.privacy.zcdp import multiplier_of_rho, rho_of_multiplier
from coterie.records.words import Form
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.words.v1 import words_pb2 as words
from services.aggregation.domain.plausibility import noised_norm, norm_of
from services.aggregation.domain.records import Delivery
from services.aggregation.errors import BadUpdate
from services.aggregation.ways import way
from services.aggregation.ways.base import Update
from services.aggregation.ways.clusters import Clusters


@way("clusters", privacy=("trust",), incentive=("stackelberg",))
class ClustersMarket(Clusters):
    """Clusters, and a price for those who noise."""

    sells = True

    def is_quoted(self, seat: topology.Seat) -> bool:
        """Only one that noises its own update, though it may have had an offer before the round was planned anew."""
        return seat.noise_multiplier > 0.0

    def inspect(self, update: Update) -> dict[str, float]:
        """A head sees the noise of its members; that of a device alone is seen here."""
        measured = super().inspect(update)
        if update.item.role == words.ROLE_SOLO and update.item.price_microcredits > 0:
            norm = norm_of(update.layout, update.read)
            self.check_noise_left(update.item.noise_multiplier, update.delivery, update.elements, norm)
        return measured

    def check_noise_left(self, seat_multiplier: float, delivery: Delivery, elements: int, norm: float) -> None:
        """Refuses a device alone whose update's norm the budget it claims to have sold rules out.

        It was clipped to S and carries the noise of ρ₀ + ρ, its seat's and what was sold.
        """
        if delivery.form is not Form.MEAN:
            raise BadUpdate(f"a device alone hands in its own update in the form mean, not {str(delivery.form)!r}")
        bound = float(self.specification.training.get("clip_norm", 1.0))
        most = noised_norm(bound, multiplier_of_rho(rho_of_multiplier(seat_multiplier) + delivery.budget), elements)
        if norm > most:  # NaN passes here: folding refuses it and says where it is
            raise BadUpdate(
                f"the update's norm of {norm:.4g} is beyond the {most:.4g} that clipping and a sold budget of "
                f"{delivery.budget:.4g} allow"
            )

    @property
    def own_pot(self) -> int:
        """The quote's pot is for what is sold; payoffs share the one the task names."""
        return int(self.prices.get("round_microcredits", 0))
