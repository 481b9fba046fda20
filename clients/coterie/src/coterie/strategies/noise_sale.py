"""Noise sale: a clustered device whose assignment asks for noise may sell more of its privacy at the round's price.

The assignment's multiplier σ spends ρ₀ = 1/(2σ²), which the cluster's payoff covers. In addition the device sells the
amount that is best for its owner, ρ = (r − b)/(2a) − αR as in [MPPFL] eq. (6), where the private costs a and b apply to
what is sold. Its update then carries the noise of ρ₀ + ρ: less than the assignment asks, never none. The device works
for the payoff in any case, so the fixed cost does not matter, and at a price too low it sells nothing.
"""

from __future__ import annotations

import math

from coterie.parameters.task import OfferParameters
from coterie.privacy import zcdp
from coterie.privacy.accounting import gaussian_charge
from coterie.privacy.budget_choice import best_budget
from coterie.strategies.budget_sale import MICRO, costs_of
from coterie.strategies.context import RoundContext


def noise_to_add(context: RoundContext) -> float:
    """Noise multiplier of this device's release: what its assignment asks for (0: no noise), less what it sells.

    After a crash the release stored before counts, whatever has become of costs and limits since.
    """
    work, assignment = context.work, context.work.noise_multiplier
    if work.incentive != "stackelberg" or assignment <= 0.0 or work.price_microcredits <= 0:
        return assignment
    made = context.prepared()
    if made is not None:
        return made.multiplier
    wanted = zcdp.multiplier_of_rho(zcdp.rho_of_multiplier(assignment) + _best_sale(context))
    charge = gaussian_charge(work.task_id, work.round, context.purpose, "device", wanted)
    within = context.ledger.preview([charge]).epsilon <= context.ledger.limit.epsilon
    return wanted if within else assignment


def sold(context: RoundContext, multiplier: float) -> float:
    """The budget to be paid for in a release of this noise: what the assignment did not ask for."""
    assignment = context.work.noise_multiplier
    if not 0.0 < multiplier < assignment:
        return 0.0
    return zcdp.rho_of_multiplier(multiplier) - zcdp.rho_of_multiplier(assignment)


def _best_sale(context: RoundContext) -> float:
    """What is best for the owner, but no more than is paid for."""
    work = context.work
    # The platform quotes αR, so the weight here is 1.
    best = best_budget(work.price_microcredits / MICRO, work.external_risk, costs_of(context), 1.0)
    most = OfferParameters.of(work.parameters).most_microcredits
    return min(best, (math.inf if most is None else most) / work.price_microcredits)
