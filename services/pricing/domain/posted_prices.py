"""From a leader's price to what is posted in a round: within the purse, worth the expected work, nobody's to set.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

Unlike [MPPFL], the platform has a budget: when the leader's price r would cost more than the round's share of the
escrow, the price falls until r·Σρ(r) fits, and devices that would lose by it withdraw. Where computing is expected to
cost a device C, the price rises until nobody with the expected costs loses by taking part.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from services.pricing.domain.auction import Sale, asked, hold
from services.pricing.domain.baselines import fixed_budgets, random_budgets
from services.pricing.domain.budgets import Market, external_risk, utilities
from services.pricing.domain.cost_prior import believing
from services.pricing.domain.followers import agnostic_budgets, equilibrium
from services.pricing.domain.game import Outcome, Solver, judged, play
from services.pricing.domain.influence import Vector, leakage
from services.pricing.domain.leaders import LeaderPrice

_HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Posted:
    """Prices that fit the purse and the budgets that answer them; `status` is "ok", "limited" or why there are none.

    Attributes
    ----------
    prices, budgets : of each device.
    caps : budgets that offers go up to.
    risk : αR that each device is told, and decides by.
    """

    status: str
    prices: Vector
    budgets: Vector
    caps: Vector
    risk: Vector

    @property
    def price(self) -> float:
        """The price, or what a unit costs on average where each device has its own."""
        sold = float(self.budgets.sum())
        return float(self.prices @ self.budgets) / sold if sold > 0 else float(self.prices.max(initial=0.0))


def lead(
    market: Market, solver: Solver, round_number: int, share: float, headroom: float, spread: float = 0.0
) -> tuple[Outcome, Posted]:
    """The market of [MPPFL], or devices and a platform that know nothing of leakage ("agnostic")."""
    outcome = believing(market, play(market, solver, round_number), solver, round_number, spread)
    believed = _unleaked(market) if solver == "agnostic" else market
    if solver != "agnostic":
        outcome = worthwhile(market, outcome, round_number)
    status, price, budgets = fit_purse(believed, outcome, share)
    caps = headroom * np.maximum(budgets, budgets.mean())
    risk = believed.risk_weight * external_risk(believed, budgets)
    return outcome, Posted(status, np.full(market.devices, price), budgets, caps, risk)


def lead_undeclared(
    market: Market, solver: Solver, round_number: int, share: float, headroom: float, spread: float = 0.0
) -> tuple[Outcome, Posted]:
    """The market where ties are what owners declare: those move what a device is told of its risk, and no payment.

    With equal expected costs every device whose leakage reaches the limit S answers ρ(r) = (r − b)/(2a(1 + αS)), so
    the leader plays against that, whatever was declared; offers are capped by what a device without any leakage would
    sell. Price and cap are then the same whatever anybody declares, and so is what it is paid for the same budget.
    """
    unleaked = _unleaked(market)
    limit = replace(unleaked, cost_quadratic=market.cost_quadratic * (1.0 + market.contraction))
    leader = believing(limit, play(limit, solver, round_number), solver, round_number, spread)
    leader = worthwhile(limit, leader, round_number)
    most = agnostic_budgets(unleaked, leader.price) if math.isfinite(leader.price) else leader.budgets
    status, price, _ = fit_purse(unleaked, replace(leader, budgets=most), share)
    budgets = equilibrium(market, price).budgets
    played = math.isfinite(leader.price)
    outcome = judged(market, leader, equilibrium(market, leader.price).budgets, round_number) if played else leader
    caps = headroom * agnostic_budgets(unleaked, price)
    risk = market.risk_weight * external_risk(market, budgets)
    return outcome, Posted(status, np.full(market.devices, price), budgets, caps, risk)


def fit_purse(market: Market, outcome: Outcome, share: float) -> tuple[str, float, Vector]:
    """Status, the leader's price or the highest below it whose cost r·Σρ(r) is at most `share` credits, and budgets."""
    nothing = np.zeros(market.devices)
    if math.isnan(outcome.price):
        return outcome.status, 0.0, nothing
    if outcome.price * float(outcome.budgets.sum()) <= share:
        return outcome.status, outcome.price, outcome.budgets
    low, high, kept = 0.0, outcome.price, nothing
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        budgets = equilibrium(market, middle).budgets
        if middle * float(budgets.sum()) <= share:
            low, kept = middle, budgets
        else:
            high = middle
    return ("limited", low, kept) if kept.any() else ("infeasible", 0.0, kept)


def worthwhile(market: Market, outcome: Outcome, round_number: int) -> Outcome:
    """The leader's price, or the least above it at which no device that sells loses by its expected costs, C included.

    A device alone needs r = b + 2√(aC). Leakage that rises with the price may leave no such price: then it stays.
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


def demand(
    market: Market, key: str, drawn: bool, factor: float, round_number: int, share: float
) -> tuple[Outcome, Posted]:
    """The baselines of [MPPFL] section 5 in which nobody chooses: everybody is to sell the same, or a `drawn`, budget.

    Price and level are the paper's leader's (mean field); where `share` credits do not pay for them, all budgets fall
    alike. Random ones are drawn anew each round, from the task's id, and so are the same when quoted again.
    """
    leader, nothing = play(market, "mean-field", round_number), np.zeros(market.devices)
    if math.isnan(leader.price):
        return leader, Posted(leader.status, nothing, nothing, nothing, nothing)
    level = factor * float(leader.budgets.mean())
    budgets = fixed_budgets(level, market.devices)
    if drawn:
        seed = hashlib.sha256(f"{key}/{round_number}".encode()).digest()
        budgets = random_budgets(level, market.devices, np.random.default_rng(int.from_bytes(seed[:8])))
    cost = leader.price * float(budgets.sum())
    scale = min(1.0, share / cost) if cost > 0 else 1.0
    outcome = judged(market, leader, scale * budgets, round_number)
    status = leader.status if scale == 1.0 else "limited" if scale > 0 else "infeasible"
    prices = np.full(market.devices, leader.price if scale > 0 else 0.0)
    risk = market.risk_weight * external_risk(market, outcome.budgets)
    return outcome, Posted(status, prices, outcome.budgets, outcome.budgets, risk)


def auctioned(
    market: Market, owners: Sequence[str], sales: Sequence[Sale], round_number: int, share: float, headroom: float
) -> tuple[Outcome, Posted]:
    """The double auction in SARDA's place: a price for each device, after what other owners' devices sold before."""
    asks = asked(owners, sales, float(market.cost_quadratic[0]), float(market.cost_linear[0]))
    free, kept = hold(market, asks, round_number), hold(market, asks, round_number, share)
    sold = bool(kept.budgets.any())
    status = "ok" if kept.spending == free.spending else "limited" if sold else "infeasible"
    caps = headroom * np.maximum(kept.budgets, kept.budgets.mean())
    posted = Posted(status, kept.prices if sold else 0.0 * kept.prices, kept.budgets, caps, kept.risk)
    mean = Posted("ok", free.prices, free.budgets, caps, free.risk).price
    answer = LeaderPrice("ok" if free.converged else "not converged", mean, free.iterations)
    bidding = replace(market, cost_quadratic=asks)
    return judged(bidding, answer, free.budgets, round_number, free.prices), posted


def _unleaked(market: Market) -> Market:
    """The market of somebody who believes that nothing leaks."""
    return replace(market, leakage=leakage(sparse.csr_array((market.devices, market.devices)), isolated="keep"))
