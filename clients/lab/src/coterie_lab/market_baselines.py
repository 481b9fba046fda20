"""What the market is compared with: random, fixed and one-hop budgets, under three rules for the price they face.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 5.

Protocols: "own" lets social-agnostic devices face the price of an agnostic platform; "common" puts all devices at the
market's price r*(t); "constant" puts the baselines at its mean over the rounds. Only "constant" reproduces the paper's
orderings, and the cause is the price that adapts to the round, not awareness of the network.

Unlike [MPPFL], SARDA (a double auction of another paper) is represented by a PROXY: the maximiser of one-hop welfare at
the price, judged under the full Σ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from services.kit.errors import Conflict
from services.pricing.domain.budgets import Market, server_cost, welfare
from services.pricing.domain.followers import agnostic_budgets, linear_response
from services.pricing.domain.influence import Leakage, Vector
from services.pricing.domain.leaders import agnostic_price, exact_price, mean_field_price
from services.pricing.domain.welfare import optimum

Protocol: TypeAlias = Literal["own", "common", "constant"]


class NoFeasiblePrice(Conflict):
    """The market has no price at which all devices stay, so nothing can be compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A mechanism over all rounds; every array has one row per round t = 1..T."""

    prices: Vector
    budgets: Vector
    costs: Vector
    welfare: Vector


def random_budgets(level: float, devices: int, generator: np.random.Generator) -> Vector:
    """Uniform between 0.1 and 2 times `level`, independent of everything."""
    return level * generator.uniform(0.1, 2.0, devices)


def fixed_budgets(level: float, devices: int) -> Vector:
    """The same budget for all devices (DP-FedAvg)."""
    return np.full(devices, level)


def one_hop(market: Market) -> Market:
    """The market as an observer of direct ties sees it (K = 1)."""
    seen = market.leakage
    matrix = None if seen.matrix is None else seen.forward.toarray()
    direct = Leakage(
        forward=seen.forward,
        backward=seen.backward,
        hops=1,
        discount=seen.discount,
        diagonal=np.zeros(seen.devices),
        diagonal_hops=1,
        matrix=matrix,
    )
    return replace(market, leakage=direct)


def compare(
    market: Market,
    rounds: int,
    protocol: Protocol,
    generator: np.random.Generator,
    *,
    fixed_factor: float = 1.0,
) -> dict[str, Series]:
    """Every mechanism over rounds 1..`rounds`.

    Keys: "market" (the paper's mean-field leader), "exact", "agnostic", "random", "fixed" (`fixed_factor` times the
    market's mean budget), "proxy", and "optimum" (best welfare at the market's own prices).
    """
    response = linear_response(market)
    quotes = [mean_field_price(market, response, t) for t in range(1, rounds + 1)]
    exact = [exact_price(market, response, t) for t in range(1, rounds + 1)]
    for quote in (*quotes, *exact):
        if quote.status != "ok":
            raise NoFeasiblePrice(f"the market has no price ({quote.status}); lower risk_weight or even out the costs")
    prices = np.array([quote.price for quote in quotes])
    budgets = np.array([response.budgets(price) for price in prices])
    level = float(budgets.mean())
    faced = np.full(rounds, prices.mean()) if protocol == "constant" else prices
    blind = faced
    if protocol == "own":
        blind = np.array([agnostic_price(market, t).price for t in range(1, rounds + 1)])
    n = market.devices
    play = {
        "market": (prices, budgets),
        "exact": (np.array([q.price for q in exact]), np.array([response.budgets(q.price) for q in exact])),
        "agnostic": (blind, np.array([agnostic_budgets(market, price) for price in blind])),
        "random": (faced, np.array([random_budgets(level, n, generator) for _ in faced])),
        "fixed": (faced, np.array([fixed_budgets(fixed_factor * level, n) for _ in faced])),
        "proxy": (faced, _along(one_hop(market), faced)),
        "optimum": (prices, _along(market, prices)),
    }
    return {name: _series(market, *moves) for name, moves in play.items()}


def _along(market: Market, prices: Vector) -> Vector:
    """Welfare-optimal budgets at every price; a constant price is solved once."""
    known = {float(price): optimum(market, float(price)).budgets for price in np.unique(prices)}
    return np.array([known[float(price)] for price in prices])


def _series(market: Market, prices: Vector, budgets: Vector) -> Series:
    moves = list(enumerate(zip(prices, budgets, strict=True), start=1))
    costs = np.array([server_cost(market, float(price), rho, t) for t, (price, rho) in moves])
    worth = np.array([welfare(market, float(price), rho) for _, (price, rho) in moves])
    return Series(prices, budgets, costs, worth)
