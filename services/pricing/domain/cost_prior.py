"""The leader's price when costs are known only by a prior: the one with the lowest mean cost.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 3.

Unlike [MPPFL], whose leader knows every cost, this leader believes that a_i and b_i are uniform within ±spread of
their expected values, independently. Followers, who know their own costs, answer ρ(r) = gr − h for each draw of costs;
the server's mean cost over draws has the first-order conditions of `leaders` with all draws side by side, so the same
root finders solve it. Costs are a fixed Latin hypercube over all devices and draws: the same draws every time.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import sparse

from services.pricing.domain.budgets import Market
from services.pricing.domain.followers import LinearResponse, equilibrium, linear_response
from services.pricing.domain.game import Outcome, Solver, judged
from services.pricing.domain.influence import leakage
from services.pricing.domain.leaders import LeaderPrice, exact_price, mean_field_price

DRAWN = 512
"""Least number of cost draws, over all devices."""


def believing(market: Market, outcome: Outcome, solver: Solver, round_number: int, spread: float) -> Outcome:
    """The outcome at the prior's cheapest price; `outcome` itself where no price keeps every draw in."""
    if spread == 0.0 or math.isnan(outcome.price):
        return outcome
    result = prior_price(market, solver, round_number, spread)
    if math.isnan(result.price):
        return outcome
    return judged(market, result, equilibrium(market, result.price).budgets, round_number)


def prior_price(market: Market, solver: Solver, round_number: int, spread: float) -> LeaderPrice:
    """The leader's price over draws of costs around the market's; solver "exact" or "mean-field"."""
    draws = math.ceil(DRAWN / market.devices)
    random, size = np.random.default_rng(0), draws * market.devices
    quadratic, linear = (
        (1.0 + spread * ((2.0 * random.permutation(size) + 1.0) / size - 1.0)).reshape(draws, -1) for _ in range(2)
    )
    believed = [
        replace(market, cost_quadratic=market.cost_quadratic * a, cost_linear=market.cost_linear * b)
        for a, b in zip(quadratic, linear, strict=True)
    ]
    answers = [linear_response(item) for item in believed]
    response = LinearResponse(
        np.concatenate([answer.slope for answer in answers]),
        np.concatenate([answer.intercept for answer in answers]),
        max(answer.iterations for answer in answers),
    )
    leader = exact_price if solver == "exact" else mean_field_price
    return leader(_side_by_side(believed), response, round_number)


def _side_by_side(markets: list[Market]) -> Market:
    """All draws as one market; the responses already hold the leakage."""
    size = len(markets) * markets[0].devices
    return replace(
        markets[0],
        leakage=leakage(sparse.csr_array((size, size)), isolated="keep"),
        cost_quadratic=np.concatenate([market.cost_quadratic for market in markets]),
        cost_linear=np.concatenate([market.cost_linear for market in markets]),
        cost_fixed=np.concatenate([market.cost_fixed for market in markets]),
        accuracy_weight=np.concatenate([market.accuracy_weight for market in markets]),
    )
