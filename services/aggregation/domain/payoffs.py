"""What everybody in a realised cluster is worth, and is owed for it. [SCFL] §IV-D."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Stakes:
    """What quality earns and clusters cost: λ_p, λ_c and ζ of [SCFL] §IV-D, as the plan played for them."""

    price: float
    member_cost: float
    head_reward: float


def divide(qualities: Mapping[str, float], alone: Mapping[str, float], head: str, stakes: Stakes) -> dict[str, float]:
    """ψ of everybody in a realised cluster. [SCFL] eqs (15)-(18), with ζ given to the head (spec A9).

    V(C) = λ_p Σq − λ_c |C| and ψ_n = q_n/Σq · (V(C) − Σ V({l}) − ζ) + V({n}) + (ζ if n is head), so Σψ = V(C). A
    cluster of one is worth V({n}), whatever it was planned to be.
    """
    if len(qualities) == 1:
        return {device: alone[device] for device in qualities}
    total = math.fsum(qualities.values())
    value = stakes.price * total - stakes.member_cost * len(qualities)
    extra = value - math.fsum(alone[device] for device in qualities) - stakes.head_reward
    return {
        device: quality / total * extra + alone[device] + (stakes.head_reward if device == head else 0.0)
        for device, quality in qualities.items()
    }


def round_off(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole numbers that sum to the rounded-down total: the largest remainders are rounded up, ties by id."""
    floors = {device: math.floor(amount) for device, amount in amounts.items()}
    missing = math.floor(sum(amounts.values(), Fraction(0))) - sum(floors.values())
    by_remainder = sorted(amounts, key=lambda device: (floors[device] - amounts[device], device))
    return {device: floors[device] + (device in set(by_remainder[:missing])) for device in amounts}


def owed(payoffs: Mapping[str, float], microcredits_per_point: float, pot_microcredits: int) -> dict[str, int]:
    """Micro-credits owed for payoffs: at a price per point, or, when that is 0, shares of the round's pot.

    A negative payoff is owed nothing. Fractions keep the sum exact to the micro-credit.
    """
    points = {device: max(Fraction(0), Fraction(payoff)) for device, payoff in payoffs.items()}
    total = sum(points.values(), Fraction(0))
    if microcredits_per_point > 0:
        rate = Fraction(microcredits_per_point)
    elif total > 0:
        rate = Fraction(pot_microcredits) / total
    else:
        rate = Fraction(0)
    return round_off({device: value * rate for device, value in points.items()})
