"""`what-if market`: price, budgets and welfare for a social network in a file. [MPPFL]"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy import sparse

from services.kit.errors import InvalidInput, TooLarge
from services.kit.runtime import whatif
from services.pricing.domain.budgets import Market
from services.pricing.domain.game import Outcome, play
from services.pricing.domain.influence import Matrix, Vector, leakage

Numbers = float | list[float]

DEVICE_LIMIT = 1_000_000


class InvalidNetwork(InvalidInput):
    """The network is missing, given twice, or has the wrong shape."""


class Input(whatif.Input):
    """Keys of the contract. A cost is one number for all devices or a list with one per device."""

    influence: list[list[float]] | None = None
    edges: list[tuple[int, int, float]] | None = None
    devices: int | None = Field(default=None, ge=1)
    hops: int = Field(default=5, ge=1, le=1000)
    discount: float = Field(default=0.5, gt=0, lt=1)
    risk_weight: float = Field(default=0.05, ge=0, lt=1)
    cost_quadratic: Numbers = 1.0
    cost_linear: Numbers = 0.04
    cost_fixed: Numbers = 0.0
    accuracy_weight: Numbers = 1.0
    balance: float = Field(default=0.5, gt=0, lt=1)
    round: int = Field(default=1, ge=1)
    floor: float = Field(default=0.0, ge=0, le=1)
    solver: Literal["exact", "mean-field", "iterate", "agnostic"] = "exact"
    price: float | None = Field(default=None, ge=0)


def solve(given: Input) -> dict[str, Any]:
    """Play one round of the market; without a feasible price only `status` and `server_cost` are not null."""
    weights = _weights(given)
    n = weights.shape[0]
    market = Market(
        leakage(weights, hops=given.hops, discount=given.discount, floor=given.floor),
        cost_quadratic=_vector("cost_quadratic", given.cost_quadratic, n),
        cost_linear=_vector("cost_linear", given.cost_linear, n),
        cost_fixed=_vector("cost_fixed", given.cost_fixed, n),
        accuracy_weight=_vector("accuracy_weight", given.accuracy_weight, n),
        risk_weight=given.risk_weight,
        balance=given.balance,
    )
    return _answer(play(market, given.solver, given.round, price=given.price))


def _answer(outcome: Outcome) -> dict[str, Any]:
    if math.isnan(outcome.price):
        keys = ("price", "budgets", "external_risk", "utilities", "welfare", "welfare_optimum", "price_of_anarchy")
        cost = outcome.server_cost if math.isinf(outcome.server_cost) else None
        return {
            "status": outcome.status,
            **dict.fromkeys(keys),
            "server_cost": cost,
            "iterations": outcome.iterations,
            "residual": None,
        }
    return {
        "status": outcome.status,
        "price": outcome.price,
        "budgets": outcome.budgets,
        "external_risk": outcome.external_risk,
        "utilities": outcome.utilities,
        "server_cost": outcome.server_cost,
        "welfare": outcome.welfare,
        "welfare_optimum": outcome.welfare_optimum,
        "price_of_anarchy": outcome.price_of_anarchy,
        "iterations": outcome.iterations,
        "residual": outcome.residual,
    }


def _weights(given: Input) -> Matrix | sparse.csr_array:
    if (given.influence is None) == (given.edges is None):
        raise InvalidNetwork("give the network either as `influence` or as `edges` with `devices`, not both or neither")
    if given.influence is not None:
        return _dense(given.influence, given.devices)
    if given.devices is None:
        raise InvalidNetwork("`edges` needs `devices`, the number of devices")
    if given.devices > DEVICE_LIMIT:
        raise TooLarge(f"at most {DEVICE_LIMIT} devices, got {given.devices}")
    return _sparse(given.edges or [], given.devices)


def _dense(rows: list[list[float]], devices: int | None) -> Matrix:
    n = len(rows)
    if n == 0:
        raise InvalidNetwork("influence has no rows; a market needs at least one device")
    for i, row in enumerate(rows):
        if len(row) != n:
            raise InvalidNetwork(f"influence must be square: row {i} has {len(row)} entries, expected {n}")
    if devices is not None and devices != n:
        raise InvalidNetwork(f"devices is {devices} but influence has {n} rows; leave devices out")
    return np.array(rows, dtype=np.float64)


def _sparse(edges: list[tuple[int, int, float]], n: int) -> sparse.csr_array:
    triples = np.array(edges, dtype=np.float64).reshape(-1, 3)
    outside = (triples[:, :2] < 0).any(axis=1) | (triples[:, :2] >= n).any(axis=1)
    if outside.any():
        bad = int(np.argmax(outside))
        raise InvalidNetwork(f"edges[{bad}] names devices {list(edges[bad][:2])}; ids run from 0 to {n - 1}")
    ends = triples[:, :2].astype(np.int64)
    keys = ends[:, 0] * n + ends[:, 1]
    distinct, times = np.unique(keys, return_counts=True)
    if (times > 1).any():
        twice = int(distinct[times > 1][0])
        raise InvalidNetwork(f"edges gives [{twice // n}, {twice % n}] more than once; add its weights up")
    return sparse.csr_array((triples[:, 2], (ends[:, 0], ends[:, 1])), shape=(n, n))


def _vector(name: str, value: Numbers, n: int) -> Vector:
    if isinstance(value, float | int):
        return np.full(n, float(value))
    if len(value) != n:
        raise InvalidNetwork(f"{name} must hold {n} numbers, one per device, got {len(value)}")
    return np.array(value, dtype=np.float64)
