"""The market for privacy budgets: each device's utility, the cost of a round, and the welfare of all devices.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, section 2.4.

A platform posts a unit price r; device i sells a zCDP budget ρ_i and is paid rρ_i. With external risk R = Σρ and
exposure s = ρ + αR = Aρ, A = I + αΣ:

    utility      U_i = rρ_i − C_i − a_i s_i² − b_i s_i                          (3)
    server cost  U(t) = (τ/t) Σ_i ε_i/ρ_i + (1 − τ) r Σ_i ρ_i                   (2)
    welfare      Wf = Σ_i [rρ_i − a_i s_i² − b_i s_i]                           (10), one round

Unlike [MPPFL], rounds count from t = 1 (t = 0 divides by zero), and a device with ε_i = 0 costs no accuracy even at
ρ_i = 0, where every other device makes the cost infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from services.kit.errors import InvalidInput
from services.pricing.domain.influence import Leakage, Solution, Vector, solve


class InvalidMarket(InvalidInput):
    """A cost, a weight or a price of the market is outside its range."""


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """Who leaks to whom, and the costs and weights of each device; arrays have one entry per device.

    Attributes
    ----------
    leakage : the operator Σ.
    cost_quadratic, cost_linear, cost_fixed : a > 0, b ≥ 0, C ≥ 0.
    accuracy_weight : ε ≥ 0, how much accuracy suffers from the device's noise.
    risk_weight : α in [0, 1), the weight of others' risk in one's own exposure.
    balance : τ in (0, 1), the server's weight of accuracy against payments.
    """

    leakage: Leakage
    cost_quadratic: Vector
    cost_linear: Vector
    cost_fixed: Vector
    accuracy_weight: Vector
    risk_weight: float = 0.05
    balance: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 <= self.risk_weight < 1.0:
            raise InvalidMarket(f"risk_weight must lie in [0, 1), got {self.risk_weight}")
        if not 0.0 < self.balance < 1.0:
            raise InvalidMarket(f"balance must lie strictly between 0 and 1, got {self.balance}")
        for name in ("cost_quadratic", "cost_linear", "cost_fixed", "accuracy_weight"):
            _check_vector(name, getattr(self, name), self.leakage.devices)
        if (self.cost_quadratic <= 0).any():
            raise InvalidMarket(f"cost_quadratic must be positive, got {self.cost_quadratic.min()}")

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return self.leakage.devices

    @property
    def contraction(self) -> float:
        """αS: below one the followers' equilibrium is unique and plain iteration finds it."""
        return self.risk_weight * self.leakage.row_sum_limit

    def target(self, price: float) -> Vector:
        """m_i = (r − b_i)/(2a_i): the exposure each device would choose at this price if it were alone."""
        return np.asarray((price - self.cost_linear) / (2.0 * self.cost_quadratic))

    def exposure(self, budgets: Vector) -> Vector:
        """s = Aρ = ρ + αΣρ."""
        return budgets + self.risk_weight * self.leakage.apply(budgets)

    def exposure_transposed(self, x: Vector) -> Vector:
        """Aᵀx."""
        return x + self.risk_weight * self.leakage.apply_transposed(x)

    def solve(self, right: Vector, *, transposed: bool = False) -> Solution:
        """A⁻¹·right, or A⁻ᵀ·right."""
        return solve(self.leakage, self.risk_weight, right, transposed=transposed)


def _check_vector(name: str, values: Vector, n: int) -> None:
    if values.shape != (n,):
        raise InvalidMarket(f"{name} must hold {n} numbers, one per device, got shape {values.shape}")
    if not np.isfinite(values).all() or (values < 0).any():
        bad = int(np.argmax(~np.isfinite(values) | (values < 0)))
        raise InvalidMarket(f"{name}[{bad}] must be finite and not negative, got {values[bad]}")


def check_price(price: float) -> None:
    """Refuse a price that is negative or not finite."""
    if not (math.isfinite(price) and price >= 0):
        raise InvalidMarket(f"price must be finite and not negative, got {price}")


def check_round(round_number: int) -> None:
    """Refuse a round below 1: the cost divides by t."""
    if round_number < 1:
        raise InvalidMarket(f"rounds count from 1, got {round_number}")


def external_risk(market: Market, budgets: Vector) -> Vector:
    """R = Σρ: the risk each device bears from the others' budgets."""
    return market.leakage.apply(budgets)


def utilities(market: Market, price: float, budgets: Vector) -> Vector:
    """U_i of every device ([MPPFL] eq. 3)."""
    s = market.exposure(budgets)
    return price * budgets - market.cost_fixed - (market.cost_quadratic * s + market.cost_linear) * s


def welfare(market: Market, price: float, budgets: Vector) -> float:
    """Wf of one round ([MPPFL] eq. 10): payments counted, computing costs not."""
    s = market.exposure(budgets)
    return float(np.sum(price * budgets - (market.cost_quadratic * s + market.cost_linear) * s))


def accuracy_loss(market: Market, budgets: Vector, round_number: int) -> float:
    """(1/t) Σ ε_i/ρ_i, the noise part of the accuracy bound ([MPPFL] eq. 1); +inf if ρ_i = 0 where ε_i > 0."""
    counts = market.accuracy_weight > 0
    if (budgets[counts] <= 0).any():
        return math.inf
    return float(np.sum(market.accuracy_weight[counts] / budgets[counts])) / round_number


def server_cost(market: Market, price: float, budgets: Vector, round_number: int) -> float:
    """U(t) ([MPPFL] eq. 2)."""
    check_round(round_number)
    paid = price * float(budgets.sum())
    return market.balance * accuracy_loss(market, budgets, round_number) + (1.0 - market.balance) * paid
