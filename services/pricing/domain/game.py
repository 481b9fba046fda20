"""One round of the market: a leader's price, the devices' budgets, and their value to the server and all devices.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from services.pricing.domain.budgets import Market, check_round, external_risk, server_cost, utilities, welfare
from services.pricing.domain.followers import (
    LinearResponse,
    agnostic_budgets,
    equilibrium,
    largest_gain,
    linear_response,
    residual,
)
from services.pricing.domain.influence import Vector
from services.pricing.domain.leaders import LeaderPrice, agnostic_price, exact_price, iterate, mean_field_price
from services.pricing.domain.welfare import optimum, price_of_anarchy

Solver: TypeAlias = Literal["exact", "mean-field", "iterate", "agnostic"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A round's result; without a price (`status` not "ok" or "boundary") the arrays are empty and numbers nan.

    Attributes
    ----------
    status : see `leaders.LeaderPrice`.
    price, budgets : r and ρ.
    external_risk, utilities : R and U_i.
    server_cost, welfare, welfare_optimum, price_of_anarchy : of this round; cost is +inf when infeasible.
    iterations : of the outermost method that ran.
    residual : max |min(ρ, Aρ − m)|, zero at a Nash equilibrium (agnostic devices are not at one).
    largest_gain : the most one device could gain by deviating alone.
    """

    status: str
    price: float
    budgets: Vector
    external_risk: Vector
    utilities: Vector
    server_cost: float
    welfare: float
    welfare_optimum: float
    price_of_anarchy: float
    iterations: int
    residual: float
    largest_gain: float


def play(
    market: Market,
    solver: Solver = "exact",
    round_number: int = 1,
    *,
    price: float | None = None,
    response: LinearResponse | None = None,
) -> Outcome:
    """Play one round. With `price` only the followers move; a known `response` saves two solves."""
    check_round(round_number)
    answer, budgets = _moves(market, solver, round_number, price, response)
    if math.isnan(answer.price):
        return _nothing(answer)
    return judged(market, answer, budgets, round_number)


def judged(market: Market, answer: LeaderPrice | Outcome, budgets: Vector, round_number: int) -> Outcome:
    """Value these budgets at a price, for the server and all devices, whatever solver chose them."""
    risk = external_risk(market, budgets)
    achieved = welfare(market, answer.price, budgets)
    best = max(optimum(market, answer.price).welfare, achieved)
    return Outcome(
        status=answer.status,
        price=answer.price,
        budgets=budgets,
        external_risk=risk,
        utilities=utilities(market, answer.price, budgets),
        server_cost=server_cost(market, answer.price, budgets, round_number),
        welfare=achieved,
        welfare_optimum=best,
        price_of_anarchy=price_of_anarchy(best, achieved),
        iterations=answer.iterations,
        residual=residual(market, answer.price, budgets),
        largest_gain=largest_gain(market, answer.price, budgets),
    )


def _moves(
    market: Market, solver: Solver, round_number: int, price: float | None, response: LinearResponse | None
) -> tuple[LeaderPrice, Vector]:
    if solver == "agnostic":
        answer = agnostic_price(market, round_number) if price is None else LeaderPrice("ok", price, 0)
        return answer, agnostic_budgets(market, answer.price)
    if price is not None:
        return _answered(market, price)
    response = linear_response(market) if response is None else response
    if solver == "iterate":
        settled = iterate(market, response, round_number)
        return settled.answer, settled.budgets
    leader = exact_price if solver == "exact" else mean_field_price
    answer = leader(market, response, round_number)
    if answer.status == "ok" and market.accuracy_weight.any():
        return answer, response.budgets(answer.price)
    if math.isnan(answer.price):
        return answer, np.zeros(0)
    return answer, equilibrium(market, answer.price).budgets


def _answered(market: Market, price: float) -> tuple[LeaderPrice, Vector]:
    answer = equilibrium(market, price)
    return LeaderPrice("ok" if answer.converged else "not converged", price, answer.iterations), answer.budgets


def _nothing(answer: LeaderPrice) -> Outcome:
    nothing = np.zeros(0)
    cost = math.inf if answer.status == "infeasible" else math.nan
    return Outcome(
        status=answer.status,
        price=math.nan,
        budgets=nothing,
        external_risk=nothing,
        utilities=nothing,
        server_cost=cost,
        welfare=math.nan,
        welfare_optimum=math.nan,
        price_of_anarchy=math.nan,
        iterations=answer.iterations,
        residual=math.nan,
        largest_gain=math.nan,
    )
