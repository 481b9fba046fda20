"""From a leader's price to the prices of a round: within its budget, worth the expected work, not for devices to set.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

Unlike [MPPFL], the platform has a budget: when the leader's price r would cost more than the round's share of the
escrow, the price falls until r·Σρ(r) fits, and devices that would lose by it withdraw. Where computing is expected to
cost a device C, the price rises until no device with the expected costs loses by taking part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from services.pricing.domain.budgets import Market, external_risk, utilities
from services.pricing.domain.cost_prior import believing
from services.pricing.domain.followers import agnostic_budgets, equilibrium
from services.pricing.domain.game import Outcome, Solver, judged, play
from services.pricing.domain.influence import Vector, leakage
from services.pricing.domain.leaders import LeaderPrice

_HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False)
class PostedPrices:
    """Prices that fit the round's budget, and the budgets sold; `status` is "ok", "limited" or why there are none.

    Attributes
    ----------
    price, budgets : one unit price for all, and the budget of each device.
    caps : largest budgets that offers cover.
    risk : αR that each device receives, and decides by.
    """

    status: str
    price: float
    budgets: Vector
    caps: Vector
    risk: Vector


def lead_direct(
    market: Market, solver: Solver, round_number: int, share: float, *, headroom: float, spread: float = 0.0
) -> tuple[Outcome, PostedPrices]:
    """The market of [MPPFL], or one in which devices and platform ignore leakage ("agnostic")."""
    outcome = believing(market, play(market, solver, round_number), solver, round_number, spread)
    believed = _unleaked(market) if solver == "agnostic" else market
    if solver != "agnostic":
        outcome = worthwhile(market, outcome, round_number)
    status, price, budgets = fit_round_budget(believed, outcome, share)
    caps = headroom * np.maximum(budgets, budgets.mean())
    risk = believed.risk_weight * external_risk(believed, budgets)
    return outcome, PostedPrices(status, price, budgets, caps, risk)


def lead_undeclared(
    market: Market, solver: Solver, round_number: int, share: float, *, headroom: float, spread: float = 0.0
) -> tuple[Outcome, PostedPrices]:
    """The market whose ties are declared by owners: declarations change the risk a device sees, and no payment.

    With equal expected costs every device whose leakage reaches the limit S answers ρ(r) = (r − b)/(2a(1 + αS)), so the
    leader plays against that, whatever owners declare; offers are capped at what a device without leakage sells.
    Price and cap, and with them the payment for a given budget, do not depend on declarations.
    """
    unleaked = _unleaked(market)
    limit = replace(unleaked, cost_quadratic=market.cost_quadratic * (1.0 + market.contraction))
    leader = believing(limit, play(limit, solver, round_number), solver, round_number, spread)
    leader = worthwhile(limit, leader, round_number)
    most = agnostic_budgets(unleaked, leader.price) if math.isfinite(leader.price) else leader.budgets
    status, price, _ = fit_round_budget(unleaked, replace(leader, budgets=most), share)
    budgets = equilibrium(market, price).budgets
    played = math.isfinite(leader.price)
    outcome = judged(market, leader, equilibrium(market, leader.price).budgets, round_number) if played else leader
    caps = headroom * agnostic_budgets(unleaked, price)
    risk = market.risk_weight * external_risk(market, budgets)
    return outcome, PostedPrices(status, price, budgets, caps, risk)


def fit_round_budget(market: Market, outcome: Outcome, share: float) -> tuple[str, float, Vector]:
    """Status, the leader's price or the highest below it whose cost r·Σρ(r) is at most `share` credits, and budgets."""
    nothing = np.zeros(market.devices)
    if math.isnan(outcome.price):
        return outcome.status, 0.0, nothing
    if outcome.price * float(outcome.budgets.sum()) <= share:
        return outcome.status, outcome.price, outcome.budgets
    low, high, retained = 0.0, outcome.price, nothing
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        budgets = equilibrium(market, middle).budgets
        if middle * float(budgets.sum()) <= share:
            low, retained = middle, budgets
        else:
            high = middle
    return ("limited", low, retained) if retained.any() else ("infeasible", 0.0, retained)


def worthwhile(market: Market, outcome: Outcome, round_number: int) -> Outcome:
    """The leader's price, or the least above it at which no selling device loses by its expected costs, C included.

    A single device needs r = b + 2√(aC). Leakage that rises with the price may leave no such price: then r stays.
    """
    if math.isnan(outcome.price) or not market.cost_fixed.any():
        return outcome

    def loses(price: float) -> bool:
        budgets = equilibrium(market, price).budgets
        worth = utilities(market, price, budgets)[budgets > 0]
        return bool(worth.size == 0 or worth.min() < 0)

    low = high = max(outcome.price, np.finfo(float).tiny)
    for _ in range(_HALVINGS):
        if not loses(high):
            break
        low, high = high, 2.0 * high
    else:
        return outcome
    if low == high:
        return outcome
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if loses(middle) else (low, middle)
    raised = LeaderPrice(outcome.status, high, outcome.iterations)
    return judged(market, raised, equilibrium(market, high).budgets, round_number)


def _unleaked(market: Market) -> Market:
    """The same market without leakage."""
    return replace(market, leakage=leakage(sparse.csr_array((market.devices, market.devices)), isolated="keep"))
