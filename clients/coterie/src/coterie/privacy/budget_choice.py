"""How much privacy a device sells at a quoted price. Its costs never leave it.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

The platform quotes a unit price r and the external risk R that the device suffers from the others. With private costs
a, b, C the device's utility U(ρ) = rρ − C − a(ρ + αR)² − b(ρ + αR) is a parabola, so its best budget is

    ρ = max(0, (r − b)/(2a) − αR)                                               (6), projected

and `coterie.privacy.zcdp.variance_of_rho` gives the Gaussian noise that spends exactly ρ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrivateCosts:
    """A device's cost of privacy and work: quadratic a > 0, linear b ≥ 0, fixed C ≥ 0."""

    quadratic: float
    linear: float = 0.0
    fixed: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.quadratic) and self.quadratic > 0):
            raise ValueError(f"quadratic cost must be positive and finite, got {self.quadratic}")
        for name, value in (("linear", self.linear), ("fixed", self.fixed)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} cost must be finite and not negative, got {value}")


@dataclass(frozen=True, slots=True)
class Decision:
    """The device's reply to a quote: the zCDP budget it sells (0 declines), its utility and its payment."""

    budget: float
    utility: float
    payment: float

    @property
    def joins(self) -> bool:
        """Whether the device takes part in the round."""
        return self.budget > 0


def best_budget(price: float, external_risk: float, costs: PrivateCosts, risk_weight: float) -> float:
    """ρ = max(0, (r − b)/(2a) − αR)."""
    return max(0.0, (price - costs.linear) / (2.0 * costs.quadratic) - risk_weight * external_risk)


def utility(price: float, budget: float, external_risk: float, costs: PrivateCosts, risk_weight: float) -> float:
    """U = rρ − C − a s² − b s with exposure s = ρ + αR ([MPPFL] eq. 3)."""
    s = budget + risk_weight * external_risk
    return price * budget - costs.fixed - (costs.quadratic * s + costs.linear) * s


def decide(
    price: float, external_risk: float, costs: PrivateCosts, risk_weight: float, *, least_utility: float = -math.inf
) -> Decision:
    """Return the best budget, or 0 if its utility is below `least_utility`.

    By default a device joins whenever its best budget is above 0; `least_utility=0` declines rounds at a loss.
    """
    for name, value in (("price", price), ("external_risk", external_risk)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and not negative, got {value}; ask for a new quote")
    budget = best_budget(price, external_risk, costs, risk_weight)
    worth = utility(price, budget, external_risk, costs, risk_weight)
    if budget == 0.0 or worth < least_utility:
        idle = PrivateCosts(costs.quadratic, costs.linear)  # staying out saves the work, not the external risk
        return Decision(0.0, utility(price, 0.0, external_risk, idle, risk_weight), 0.0)
    return Decision(budget, worth, price * budget)
