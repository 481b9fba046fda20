"""The payoff of each device in a realised cluster, and what it is owed."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.pricing.domain.payoffs import Cluster, GameParameters, Payoffs, divide, owed, pay_points
from services.pricing.errors import BadRound
from services.topology.domain.coalition import Game, evaluate
from services.topology.domain.coalition import GameParameters as PlannedGameParameters
from services.trust.domain.graph import TrustGraph

STAKES = GameParameters(price=0.5, member_cost=1.0, head_reward=2.0)


def test_a_cluster_by_hand() -> None:
    """V = 0.5·(30 + 10) − 1·2 = 18; extra = 18 − (8 + 4) − 2 = 4, at 3:1; the head a gets 3 + 8 + 2, b 1 + 4."""
    cluster = Cluster("a", {"a": 30.0, "b": 10.0}, {"a": 8.0, "b": 4.0}, STAKES)
    assert divide(cluster) == {"a": 13.0, "b": 5.0}
    assert owed(Payoffs([cluster], credits_per_point=0.1), 0) == {"a": 1_300_000, "b": 500_000}
    assert owed(Payoffs([cluster]), 36) == {"a": 26, "b": 10}
    assert owed(Payoffs([cluster], pot_microcredits=18), 36) == {"a": 13, "b": 5}


def test_payoffs_of_a_realised_cluster_agree_with_the_coalition_game() -> None:
    """Independent route: the topology's own evaluation of the same cluster."""
    draw = np.random.default_rng(5)
    direct = np.zeros((4, 4))
    direct[np.triu_indices(4, 1)] = draw.uniform(0.2, 1, 6)
    game = Game(
        TrustGraph.from_dense(direct + direct.T),
        draw.uniform(0.1, 20, 4),
        game_parameters=PlannedGameParameters(head_reward=2),
    )
    planned = evaluate(game, range(4))
    names = "abcd"
    divided = divide(
        Cluster(
            names[planned.head],
            {names[k]: float(planned.quality[k]) for k in range(4)},
            {names[k]: float(evaluate(game, [k]).payoff[0]) for k in range(4)},
            GameParameters(0.52, 1.2, 2.0),
        )
    )
    assert list(divided.values()) == pytest.approx(planned.payoff.tolist(), abs=1e-9)


def test_a_cluster_of_which_only_the_head_is_left_is_worth_a_device_alone() -> None:
    assert divide(Cluster("a", {"a": 96.8}, {"a": 32.4}, GameParameters(0.52, 1.2, 5.0))) == {"a": 32.4}


names = st.text("abcdefgh", min_size=1, max_size=3)


@given(st.dictionaries(names, st.floats(-5, 60), min_size=1), st.floats(1e-9, 1.0))
def test_what_is_owed_sums_to_points_times_price_to_micro_credit(points: dict[str, float], price: float) -> None:
    """Σ owed = ⌊Σ max(ψ, 0) · rate⌋ exactly, and each within one micro-credit of its share."""
    result, rate = pay_points(points, price, 0), Fraction(price * 1e6)
    exact = {device: max(Fraction(0), Fraction(value)) * rate for device, value in points.items()}
    assert sum(result.values()) == math.floor(sum(exact.values()))
    assert all(abs(result[device] - exact[device]) < 1 for device in points)


def rounded_by_fractions(points: dict[str, float], price: float, pot: int) -> dict[str, int]:
    """The amounts by another route: one fraction for each, the largest remainders up, ties by name."""
    shares = {name: max(Fraction(0), Fraction(value)) for name, value in points.items()}
    total = sum(shares.values(), Fraction(0))
    rate = Fraction(price * 1e6) if price > 0 else Fraction(pot) / total if total else Fraction(0)
    amounts = {name: share * rate for name, share in shares.items()}
    floors = {name: math.floor(amount) for name, amount in amounts.items()}
    missing = math.floor(sum(amounts.values(), Fraction(0))) - sum(floors.values())
    first = sorted(amounts, key=lambda name: (floors[name] - amounts[name], name))[:missing]
    return {name: floors[name] + (name in first) for name in amounts}


@given(st.dictionaries(names, st.floats(-5, 60), min_size=1), st.sampled_from([0.0, 0.1, 2.5]), st.integers(0, 99))
def test_amounts_are_the_same_by_another_route(points: dict[str, float], price: float, pot: int) -> None:
    assert pay_points(points, price, pot) == rounded_by_fractions(points, price, pot)


@given(st.dictionaries(names, st.floats(0.5, 60), min_size=1), st.integers(0, 10**12))
def test_without_a_price_the_whole_pot_is_shared(points: dict[str, float], pot: int) -> None:
    assert sum(pay_points(points, 0.0, pot).values()) == pot


def test_nothing_is_owed_without_earnings() -> None:
    assert pay_points({"a": -1.0, "b": 0.0}, 0.0, 100) == {"a": 0, "b": 0}
    assert owed(Payoffs([]), 100) == {}


def test_impossible_clusters_are_refused() -> None:
    pair = Cluster("a", {"a": 30.0, "b": 10.0}, {"a": 8.0, "b": 4.0}, STAKES)
    with pytest.raises(BadRound, match="two clusters"):
        owed(Payoffs([pair, Cluster("b", {"b": 1.0}, {"b": 1.0}, STAKES)]), 1)
    with pytest.raises(BadRound, match="not finite"):
        owed(Payoffs([replace(pair, alone={"a": math.nan, "b": 1.0})]), 1)
    with pytest.raises(BadRound, match="total quality of 0"):
        owed(Payoffs([replace(pair, qualities={"a": 0.0, "b": 0.0})]), 1)
