"""The realised value of a cluster, and what it owes each of its devices.

[SCFL] Social-Aware Clustered Federated Learning, §IV-D. Points are the paper's payoffs; a task pays credits per point,
or divides a pot by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from services.pricing.domain.money import MICRO, apportion, round_together
from services.pricing.errors import BadRound


@dataclass(frozen=True, slots=True)
class GameParameters:
    """What quality earns and clusters cost: λ_p, λ_c and ζ, as in the plan's game."""

    price: float
    member_cost: float
    head_reward: float


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices that delivered together: `qualities` by device id, and each device's value `alone`."""

    head: str
    qualities: Mapping[str, float]
    alone: Mapping[str, float]
    game_parameters: GameParameters


@dataclass(frozen=True, slots=True)
class Payoffs:
    """The clusters of a round and their payment: credits per point, or shares of a pot (0 = the quote's)."""

    clusters: Sequence[Cluster]
    credits_per_point: float = 0.0
    pot_microcredits: int = 0


def owed(payoffs: Payoffs, quoted_pot: int) -> dict[str, int]:
    """Micro-credits owed to each device in a cluster."""
    points: dict[str, float] = {}
    for cluster in payoffs.clusters:
        _check(cluster, points)
        points |= divide(cluster)
    return pay_points(points, payoffs.credits_per_point, payoffs.pot_microcredits or quoted_pot)


def divide(cluster: Cluster) -> dict[str, float]:
    """ψ of each device in a realised cluster. [SCFL] eqs (15)-(18), with ζ given to the head (spec A9).

    V(C) = λ_p Σq − λ_c |C| and ψ_n = q_n/Σq · (V(C) − Σ V({l}) − ζ) + V({n}) + (ζ if n is head), so Σψ = V(C). A
    cluster of one has the value V({n}), whatever the plan had in mind.
    """
    qualities, alone, game_parameters = cluster.qualities, cluster.alone, cluster.game_parameters
    if len(qualities) == 1:
        return dict(alone)
    total = math.fsum(qualities.values())
    value = game_parameters.price * total - game_parameters.member_cost * len(qualities)
    extra = value - math.fsum(alone[device] for device in qualities) - game_parameters.head_reward
    return {
        device: quality / total * extra
        + alone[device]
        + (game_parameters.head_reward if device == cluster.head else 0.0)
        for device, quality in qualities.items()
    }


def pay_points(points: Mapping[str, float], credits_per_point: float, pot_microcredits: int) -> dict[str, int]:
    """Micro-credits for points: at a price per point or, when that is 0, as shares of the pot.

    Negative points are owed nothing. Exact fractions keep the sum exact to the micro-credit.
    """
    names = list(points)
    exact = [max(Fraction(0), Fraction(points[name])) for name in names]
    unit = max((value.denominator for value in exact), default=1)  # floats: the largest power of two divides by all
    parts = [int(value * unit) for value in exact]
    if credits_per_point > 0:
        rate = Fraction(credits_per_point * MICRO)
        amounts = round_together([part * rate.numerator for part in parts], unit * rate.denominator, names)
    else:
        amounts = apportion(pot_microcredits, parts, names)
    return dict(zip(names, amounts, strict=True))


def _check(cluster: Cluster, known: Mapping[str, float]) -> None:
    twice = known.keys() & cluster.qualities.keys()
    if twice:
        raise BadRound(f"device {min(twice)} is in two clusters; send each device once")
    game_parameters = cluster.game_parameters
    numbers = (
        game_parameters.price,
        game_parameters.member_cost,
        game_parameters.head_reward,
        *cluster.qualities.values(),
    )
    if not all(map(math.isfinite, (*numbers, *cluster.alone.values()))):
        raise BadRound(f"the cluster of {cluster.head} has a quality or value that is not finite; plan it again")
    if len(cluster.qualities) > 1 and math.fsum(cluster.qualities.values()) == 0.0:
        raise BadRound(f"the cluster of {cluster.head} has a total quality of 0; plan it again")
