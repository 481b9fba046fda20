"""What everybody in a realised cluster is worth, and is owed for it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.aggregation.domain import payoffs
from services.aggregation.domain.payoffs import Stakes
from services.topology.domain.coalition import Game, evaluate
from services.topology.domain.coalition import Stakes as PlannedStakes
from services.trust.domain.graph import TrustGraph


def test_payoffs_of_a_realised_cluster_agree_with_the_coalition_game() -> None:
    """Independent route: the topology's own evaluation of the same cluster."""
    draw = np.random.default_rng(5)
    direct = np.zeros((4, 4))
    direct[np.triu_indices(4, 1)] = draw.uniform(0.2, 1, 6)
    game = Game(TrustGraph.from_dense(direct + direct.T), draw.uniform(0.1, 20, 4), stakes=PlannedStakes(head_reward=2))
    planned = evaluate(game, range(4))
    names = "abcd"
    divided = payoffs.divide(
        {names[k]: float(planned.quality[k]) for k in range(4)},
        {names[k]: float(evaluate(game, [k]).payoff[0]) for k in range(4)},
        names[planned.head],
        Stakes(0.52, 1.2, 2.0),
    )
    assert list(divided.values()) == pytest.approx(planned.payoff.tolist(), abs=1e-9)


def test_a_cluster_of_which_only_the_head_is_left_is_worth_a_device_alone() -> None:
    assert payoffs.divide({"a": 96.8}, {"a": 32.4, "b": 30.0}, "a", Stakes(0.52, 1.2, 5.0)) == {"a": 32.4}


names = st.text("abcdefgh", min_size=1, max_size=3)


@given(st.dictionaries(names, st.floats(-5, 60), min_size=1), st.floats(0.001, 1e6))
def test_what_is_owed_sums_to_the_points_times_the_price_to_the_micro_credit(
    points: dict[str, float], rate: float
) -> None:
    """Σ owed = ⌊Σ max(ψ, 0) · rate⌋ exactly, and nobody is more than one micro-credit from its own share."""
    found = payoffs.owed(points, rate, 0)
    exact = {device: max(Fraction(0), Fraction(value)) * Fraction(rate) for device, value in points.items()}
    assert sum(found.values()) == math.floor(sum(exact.values()))
    assert all(abs(found[device] - exact[device]) < 1 for device in points)


@given(st.dictionaries(names, st.floats(0.5, 60), min_size=1), st.integers(0, 10**12))
def test_without_a_price_the_whole_pot_is_shared(points: dict[str, float], pot: int) -> None:
    assert sum(payoffs.owed(points, 0.0, pot).values()) == pot


def test_nothing_is_owed_when_nobody_earned_anything() -> None:
    assert payoffs.owed({"a": -1.0, "b": 0.0}, 0.0, 100) == {"a": 0, "b": 0}
