"""Offers of the market: the unit price of a round, within what its escrow can pay, and every device's risk term.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

True costs never leave the devices, so the leader plays against the task's public estimate of them; each device then
answers with its own. Unlike [MPPFL], the platform has a budget: when the leader's price r would cost more than the
round's share of the escrow, the price falls until r·Σρ(r) fits, and devices that would lose by it withdraw. A device
may sell up to `headroom` times what is expected of it, less when the escrow could not pay that to everybody: an offer
is a promise.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from coterie.records.words import QuoteStatus
from services.kit.whatif import plain
from services.pricing.domain.baselines import fixed_budgets, random_budgets
from services.pricing.domain.budgets import Market, external_risk
from services.pricing.domain.followers import equilibrium, feasible_interval, linear_response
from services.pricing.domain.game import Outcome, judged, play
from services.pricing.domain.incentives import StackelbergParameters
from services.pricing.domain.influence import Vector, leakage
from services.pricing.domain.money import MICRO, apportion, from_credits, whole
from services.pricing.domain.records import Offer, Purse, Quote

_HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Posted:
    """A price that fits the purse and the budgets that answer it; `status` is "ok", "limited" or why there is none."""

    status: str
    price: float
    budgets: Vector
    demanded: bool = False
    """Whether a device is to sell exactly its budget, or nothing."""


@dataclass(frozen=True, slots=True)
class Data:
    """What the noise of each device is spread over: samples D_i and what counts of them, model size p, clip norm S."""

    samples: tuple[int, ...]
    counted: tuple[float, ...]
    elements: float
    clip_norm: float


def quote_stackelberg(
    task_id: str,
    round_number: int,
    device_ids: list[str],
    ties: sparse.csr_array,
    parameters: StackelbergParameters,
    purse: Purse,
    data: Data | None = None,
) -> Quote:
    """One offer per device. `ties` is the trust among them: who trusts a device leaks its secrets."""
    market = _market(ties, parameters, data)
    share = max(0, purse.share_microcredits - parameters.round_microcredits) / MICRO
    if parameters.solver == "random" or parameters.solver == "fixed":
        outcome, posted = demand(market, parameters, task_id, round_number, share)
    else:
        outcome = play(market, parameters.solver, round_number)
        posted = fit_purse(market, outcome, share)
    price = from_credits(posted.price)
    headroom = 1.0 if posted.demanded else parameters.headroom
    caps = headroom * (posted.budgets if posted.demanded else np.maximum(posted.budgets, posted.budgets.mean()))
    most = _most(caps, price, purse.escrow_microcredits - parameters.round_microcredits)
    risk = market.risk_weight * external_risk(market, posted.budgets)
    offers = tuple(
        Offer(device_id, price, float(risk[i]), expected=float(posted.budgets[i]), most_microcredits=most[i])
        for i, device_id in enumerate(device_ids)
    )
    details = _details(market, outcome, posted, parameters)
    pot = min(parameters.round_microcredits, purse.escrow_microcredits)
    return Quote(task_id, round_number, "stackelberg", QuoteStatus(posted.status), offers, pot, details)


def fit_purse(market: Market, outcome: Outcome, share: float) -> Posted:
    """The leader's price, or the highest below it whose cost r·Σρ(r) is at most `share` credits."""
    nothing = np.zeros(market.devices)
    if math.isnan(outcome.price):
        return Posted(outcome.status, 0.0, nothing)
    if outcome.price * float(outcome.budgets.sum()) <= share:
        return Posted(outcome.status, outcome.price, outcome.budgets)
    low, high, kept = 0.0, outcome.price, nothing
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        budgets = equilibrium(market, middle).budgets
        if middle * float(budgets.sum()) <= share:
            low, kept = middle, budgets
        else:
            high = middle
    return Posted("limited" if kept.any() else "infeasible", low if kept.any() else 0.0, kept)


def demand(
    market: Market, parameters: StackelbergParameters, task_id: str, round_number: int, share: float
) -> tuple[Outcome, Posted]:
    """The baselines of [MPPFL] section 5 in which nobody chooses: everybody is to sell the same, or a random, budget.

    Price and level are the paper's leader's (mean field); where `share` credits do not pay for them, all budgets fall
    alike. Random ones are drawn anew each round, from the task's id, and so are the same when quoted again.
    """
    leader = play(market, "mean-field", round_number)
    if math.isnan(leader.price):
        return leader, Posted(leader.status, 0.0, np.zeros(market.devices), demanded=True)
    level = parameters.fixed_factor * float(leader.budgets.mean())
    budgets = fixed_budgets(level, market.devices)
    if parameters.solver == "random":
        seed = hashlib.sha256(f"{task_id}/{round_number}".encode()).digest()
        budgets = random_budgets(level, market.devices, np.random.default_rng(int.from_bytes(seed[:8])))
    cost = leader.price * float(budgets.sum())
    scale = min(1.0, share / cost) if cost > 0 else 1.0
    outcome = judged(market, leader, scale * budgets, round_number)
    status = leader.status if scale == 1.0 else "limited" if scale > 0 else "infeasible"
    return outcome, Posted(status, leader.price if scale > 0 else 0.0, outcome.budgets, demanded=True)


def least_credits(market: Market) -> float:
    """What the lowest price that keeps everybody in would cost; infinite when there is none."""
    response = linear_response(market)
    interval = feasible_interval(response)
    if interval.empty:
        return math.inf
    return interval.low * float(np.maximum(response.budgets(interval.low), 0.0).sum())


def accuracy_weights(data: Data, curvature: float) -> Vector:
    """ε_i = p(β/μ²)S²θ_i²/D_i², how much accuracy suffers from each device's noise ([MPPFL] section 2.4).

    θ_i is the device's weight in the mean, which is what *counts* of its samples, while its noise falls with all of
    them. Who understates them raises 1/ΣD by its own share at most, for everybody alike; overstating lowers the price.
    """
    share = np.array(data.counted) / max(sum(data.counted), 1.0)
    return np.asarray(data.elements * curvature * (data.clip_norm * share / np.maximum(data.samples, 1)) ** 2)


def _market(ties: sparse.csr_array, parameters: StackelbergParameters, data: Data | None) -> Market:
    n = ties.shape[0]
    everybody = np.ones(n)
    weights = parameters.accuracy_weight * everybody
    if parameters.curvature is not None and data is not None:
        weights = accuracy_weights(data, parameters.curvature)
    return Market(
        leakage(
            ties,
            hops=parameters.hops,
            discount=parameters.discount,
            floor=_floor(ties, parameters.floor),
            isolated="keep",
        ),
        cost_quadratic=parameters.cost_quadratic * everybody,
        cost_linear=parameters.cost_linear * everybody,
        cost_fixed=np.zeros(n),
        accuracy_weight=weights,
        risk_weight=parameters.risk_weight,
        balance=parameters.balance,
    )


def _floor(ties: sparse.csr_array, floor: float) -> float:
    """The floor asked for, or the highest that a device with so many ties can have."""
    degree = int(np.diff(ties.indptr).max(initial=0))
    return min(floor, 1.0 / degree) if degree else floor


def _most(caps: Vector, price: int, escrow: int) -> list[int]:
    """Most each device can be paid for budgets up to `caps`, and together no more than the escrow."""
    most = [whole(price * float(cap)) for cap in caps]
    return most if sum(most) <= escrow else apportion(max(0, escrow), most, [str(i) for i in range(len(most))])


def _details(market: Market, outcome: Outcome, posted: Posted, parameters: StackelbergParameters) -> dict[str, Any]:
    least = least_credits(market)
    details: dict[str, Any] = {
        "price": posted.price,
        "leader_price": outcome.price,
        "leader_status": outcome.status,
        "risk_weight": market.risk_weight,
        "expected_microcredits": from_credits(posted.price * float(posted.budgets.sum()), up=True),
        "staying": int((posted.budgets > 0).sum()),
        "least_microcredits": from_credits(least, up=True) if math.isfinite(least) else math.inf,
        "server_cost": outcome.server_cost,
        "welfare": outcome.welfare,
        "welfare_optimum": outcome.welfare_optimum,
        "price_of_anarchy": outcome.price_of_anarchy,
        "residual": outcome.residual,
        "largest_gain": outcome.largest_gain,
        "headroom": parameters.headroom,
        "influence": parameters.influence,
        "accuracy_weights": market.accuracy_weight,
    }
    found: dict[str, Any] = plain(details)
    return found
