"""An iterative double auction of privacy budgets that sees risk one hop away: a live baseline in SARDA's place.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 5,
compares with SARDA, a double auction of another paper which it does not define. Every choice is therefore ours:

* Goods: each device's budget ρ_i is a good of its own, with a price p_i of its own.
* The buyer bids what (2) makes a budget worth to it: it takes ρ_i up to τε_i/((1 − τ)tρ_i²) = p_i.
* A seller asks its marginal cost, b + 2a(ρ_i + αR_i), with R = W̃ρ: it knows of direct ties alone (K = 1).
* The auctioneer lets both sides answer each other until supply is demand everywhere. A larger risk h_i = αR_i lowers
  the ρ_i that clears by less than it rises (−1 < dρ_i/dh_i < 0), and rows of W̃ sum to 1, so that one step contracts
  by α in the max norm: there is one outcome, and it is found.
* Bids are sales. Costs never leave devices, so that a round is an iteration: what a device sold in the round before
  tells the a it asked for. An ask that nobody can check would be a free lie; a sale costs who makes it.
* A device is priced in an auction in which everybody asks the median of what *other* owners' devices asked: neither
  its price nor the risk it is told ever follows from its own or its owner's sales, so that selling the best answer to
  its price is best for it in every round. What this does not stop: owners who collude, and a device that sells less so
  that others are offered other prices, sell less in turn and leak less of it; it pays for that with its own sales.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from services.pricing.domain.baselines import one_hop
from services.pricing.domain.budgets import Market, check_round
from services.pricing.domain.influence import Vector

_STEPS = 10_000
_NEWTON = 200
_HALVINGS = 60


@dataclass(frozen=True, slots=True)
class Sale:
    """What a device sold in the round before: ρ at a unit price, told of a risk αR."""

    owner_id: str
    price: float
    held_risk: float
    budget: float


@dataclass(frozen=True, slots=True, eq=False)
class Cleared:
    """Where the auction ended: a price, a budget and the risk αR, one hop away, for every device.

    `iterations` counts the answers of both sides to each other; `converged` says that nothing moved any more.
    """

    prices: Vector
    budgets: Vector
    risk: Vector
    iterations: int
    converged: bool

    @property
    def spending(self) -> float:
        """Σ p_i ρ_i, credits."""
        return float(self.prices @ self.budgets)


def asked(owners: Sequence[str], sales: Sequence[Sale], quadratic: float, linear: float) -> Vector:
    """The quadratic cost each device is taken to ask: the median over other owners' sales, or `quadratic` without any.

    A sale of ρ at p under the risk h says a = (p − b)/(2(ρ + h)).
    """
    told = [(sale.owner_id, _implied(sale, linear)) for sale in sales if _tells(sale, linear)]
    ranked = sorted(told, key=lambda each: each[1])
    values = [value for _, value in ranked]
    own = defaultdict[str, list[int]](list)
    for rank, (owner, _) in enumerate(ranked):
        own[owner].append(rank)
    medians = {owner: _median_without(values, own.get(owner, []), quadratic) for owner in set(owners)}
    return np.array([medians[owner] for owner in owners])


def hold(market: Market, asks: Vector, round_number: int, credits: float = math.inf) -> Cleared:
    """Every device's part of the auction in which everybody asks what is asked of it; few asks differ."""
    prices, budgets, risk = (np.zeros(market.devices) for _ in range(3))
    iterations, converged = 0, True
    for ask in np.unique(asks):
        alike = replace(market, cost_quadratic=np.full(market.devices, ask))
        found, mine = clear_within(alike, round_number, credits), asks == ask
        prices[mine], budgets[mine], risk[mine] = found.prices[mine], found.budgets[mine], found.risk[mine]
        iterations, converged = max(iterations, found.iterations), converged and found.converged
    return Cleared(prices, budgets, risk, iterations, converged)


def clear(market: Market, round_number: int, eagerness: float = 1.0) -> Cleared:
    """Prices at which demand is supply for every device; `eagerness` scales what budgets are worth to the buyer."""
    check_round(round_number)
    seen = one_hop(market)
    worth = eagerness * market.balance / (1.0 - market.balance) / round_number * market.accuracy_weight
    budgets = np.zeros(market.devices)
    iteration, moved = 0, True
    while moved and iteration < _STEPS:
        held = market.risk_weight * seen.leakage.apply(budgets)
        answer = _traded(worth, market.cost_quadratic, market.cost_linear + 2.0 * market.cost_quadratic * held)
        moved = bool((np.abs(answer - budgets) > 1e-14 * answer.max(initial=1.0)).any())
        budgets, iteration = answer, iteration + 1
    held = market.risk_weight * seen.leakage.apply(budgets)
    prices = market.cost_linear + 2.0 * market.cost_quadratic * (budgets + held)
    return Cleared(prices, budgets, held, iteration, not moved)


def clear_within(market: Market, round_number: int, credits: float) -> Cleared:
    """The same for a buyer with `credits` in its purse: it bids the highest share of its values that it can pay for."""
    free = clear(market, round_number)
    if free.spending <= credits:
        return free
    kept = replace(free, budgets=np.zeros(market.devices))
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        found = clear(market, round_number, middle)
        if found.spending <= credits:
            low, kept = middle, found
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    return kept


def _traded(worth: Vector, quadratic: Vector, base: Vector) -> Vector:
    """ρ > 0 with worth/ρ² = base + 2aρ, the root of f(ρ) = 2aρ³ + base·ρ² − worth; 0 where nothing is wanted.

    f is convex and rises, so Newton's steps from above fall to the root and never pass it.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.fmin(np.cbrt(worth / (2.0 * quadratic)), np.sqrt(worth / base))
    for _ in range(_NEWTON):
        slope = (6.0 * quadratic * rho + 2.0 * base) * rho
        excess = (2.0 * quadratic * rho + base) * rho**2 - worth
        step = np.divide(excess, slope, out=np.zeros_like(rho), where=slope > 0)
        rho = rho - np.maximum(step, 0.0)
        if float(step.max(initial=0.0)) <= 1e-16 * float(rho.max(initial=0.0)):
            break
    return rho


def _tells(sale: Sale, linear: float) -> bool:
    return sale.budget > 0.0 and sale.price > linear


def _implied(sale: Sale, linear: float) -> float:
    return (sale.price - linear) / (2.0 * (sale.budget + sale.held_risk))


def _median_without(values: Sequence[float], left_out: Sequence[int], otherwise: float) -> float:
    """The median of sorted values without those at the places `left_out`, which are sorted too."""
    size = len(values) - len(left_out)
    if size == 0:
        return otherwise

    def at(place: int) -> float:
        for gone in left_out:
            place += gone <= place
        return values[place]

    return 0.5 * (at((size - 1) // 2) + at(size // 2))
