"""Offers of the market: the unit price of a round, within what its escrow can pay, and each device's risk term.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks.

True costs never leave the devices, so the leader plays against the task's public estimate of them; each device then
answers with its own. A device may sell up to `headroom` times its expected budget, or less when the escrow could not
pay every device for that: an offer is a promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from coterie.parameters.pricing import StackelbergParameters
from coterie.records.enums import QuoteStatus
from services.kit.runtime.whatif import plain
from services.pricing.domain.budgets import Market
from services.pricing.domain.followers import feasible_interval, linear_response
from services.pricing.domain.game import Outcome
from services.pricing.domain.influence import Vector, leakage
from services.pricing.domain.money import MICRO, apportion, from_credits, whole
from services.pricing.domain.posted_prices import PostedPrices, lead_direct, lead_undeclared
from services.pricing.domain.records import Offer, Quote, RoundBudget


@dataclass(frozen=True, slots=True)
class Data:
    """What scales each device's noise: samples D_i and how many of them count, model size p, clip norm S."""

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
    round_budget: RoundBudget,
    data: Data | None = None,
) -> Quote:
    """Return one offer per device. `ties[i, j]` is how much of row i's secrets column j knows: trusted devices leak."""
    market = _market(ties, parameters, data)
    share = max(0, round_budget.share_microcredits - parameters.round_microcredits) / MICRO
    lead = lead_undeclared if parameters.influence == "declared" and parameters.solver != "agnostic" else lead_direct
    outcome, posted = lead(
        market, parameters.solver, round_number, share, headroom=parameters.headroom, spread=parameters.cost_spread
    )
    price = from_credits(posted.price)
    most = _most(posted.caps, price, round_budget.escrow_microcredits - parameters.round_microcredits)
    offers = tuple(
        Offer(device_id, price, float(posted.risk[i]), expected=float(posted.budgets[i]), most_microcredits=most[i])
        for i, device_id in enumerate(device_ids)
    )
    details = _details(market, outcome, posted, parameters)
    pot = min(parameters.round_microcredits, round_budget.escrow_microcredits)
    return Quote(
        task_id=task_id,
        round=round_number,
        incentive="stackelberg",
        status=QuoteStatus(posted.status),
        offers=offers,
        pot_microcredits=pot,
        details=details,
    )


def least_credits(market: Market) -> float:
    """The cost of the lowest price that keeps every device in; infinite when there is none."""
    response = linear_response(market)
    interval = feasible_interval(response)
    if interval.empty:
        return math.inf
    return interval.low * float(np.maximum(response.budgets(interval.low), 0.0).sum())


def accuracy_weights(data: Data, curvature: float) -> Vector:
    """ε_i = p(β/μ²)S²θ_i²/D_i², how much accuracy suffers from each device's noise ([MPPFL] section 2.4).

    θ_i is the device's weight in the mean, computed from the samples that *count*, while its noise falls with all of
    them. Understating samples raises 1/ΣD by at most the device's share, for all devices; overstating lowers the price.
    """
    share = np.array(data.counted) / max(sum(data.counted), 1.0)
    return np.asarray(data.elements * curvature * (data.clip_norm * share / np.maximum(data.samples, 1)) ** 2)


def _market(ties: sparse.csr_array, parameters: StackelbergParameters, data: Data | None) -> Market:
    n = ties.shape[0]
    all_ones = np.ones(n)
    weights = parameters.accuracy_weight * all_ones
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
        cost_quadratic=parameters.cost_quadratic * all_ones,
        cost_linear=parameters.cost_linear * all_ones,
        cost_fixed=parameters.cost_fixed * all_ones,
        accuracy_weight=weights,
        risk_weight=parameters.risk_weight,
        balance=parameters.balance,
    )


def _floor(ties: sparse.csr_array, floor: float) -> float:
    """The requested floor, or the highest one that the device with the most ties allows."""
    degree = int(np.diff(ties.indptr).max(initial=0))
    return min(floor, 1.0 / degree) if degree else floor


def _most(caps: Vector, price: int, escrow: int) -> list[int]:
    """The largest payment to each device for a budget up to its cap; scaled to the escrow together."""
    most = [whole(price * float(cap)) for cap in caps]
    return most if sum(most) <= escrow else apportion(max(0, escrow), most, [str(i) for i in range(len(most))])


def _details(
    market: Market, outcome: Outcome, posted: PostedPrices, parameters: StackelbergParameters
) -> dict[str, Any]:
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
        "solver": parameters.solver,
        "iterations": outcome.iterations,
        "influence": parameters.influence,
        "ties": np.diff(market.leakage.forward.indptr),
        "leaked": market.leakage.apply(np.ones(market.devices)),
        "accuracy_weights": market.accuracy_weight,
    }
    result: dict[str, Any] = plain(details)
    return result
