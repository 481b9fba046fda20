"""Privacy sold in clusters: a device whose seat asks for noise may give away more of it for the round's price.

The seat's multiplier σ spends ρ₀ = 1/(2σ²), which the cluster's payoff is for. On top the device sells what is best for
its owner, ρ = (r − b)/(2a) − αR as in [MPPFL] eq. (6), the private costs a and b counting what is sold. Its update then
carries the noise of ρ₀ + ρ: less than the seat asks, never none. It does the round's work for the payoff in any case,
so the fixed cost does not matter, and a price too low means a sale of nothing and not a declined round.
"""

from __future__ import annotations

import math

from coterie.privacy import zcdp
from coterie.privacy.accounting import priced_charge
from coterie.privacy_sale import best_budget
from coterie.procedures.context import RoundContext
from coterie.procedures.market import MICRO, costs_of


def rho_to_release(context: RoundContext) -> float:
    """ρ of this device's release: what its seat asks for (infinite: no noise), and what it sells on top.

    After a crash the release charged before counts, whatever has become of costs and limits since.
    """
    work = context.work
    seat = zcdp.rho_of_multiplier(work.noise_multiplier)
    if work.incentive != "stackelberg" or math.isinf(seat) or work.price_microcredits <= 0:
        return seat
    for entry in context.ledger.history(work.task_id):
        if (entry.charge.round, entry.charge.purpose) == (work.round, context.purpose):
            return entry.charge.rho
    wanted = seat + _best_sale(context)
    charge = priced_charge(work.task_id, work.round, context.purpose, wanted, "device")
    within = context.ledger.preview([charge]).epsilon <= context.ledger.limit.epsilon
    return wanted if within else seat


def sold(context: RoundContext, rho: float) -> float:
    """The budget to be paid for in a release of `rho`: what the seat did not ask for."""
    seat = zcdp.rho_of_multiplier(context.work.noise_multiplier)
    return 0.0 if math.isinf(seat) else max(0.0, rho - seat)


def _best_sale(context: RoundContext) -> float:
    """What is best for the owner, but no more than is paid for."""
    work = context.work
    # The platform quotes αR, so the weight here is 1.
    best = best_budget(work.price_microcredits / MICRO, work.external_risk, costs_of(context), 1.0)
    most = work.parameters.get("offer", {}).get("most_microcredits", math.inf)
    return min(best, float(most) / work.price_microcredits)
