"""Rounds in clusters: whose work counts, which heads are lost, and what everybody is owed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.aggregation.domain import clusters
from services.aggregation.domain.clusters import Stakes
from services.aggregation.domain.records import Participation
from services.topology.domain.coalition import Game, evaluate
from services.topology.domain.coalition import Stakes as PlannedStakes
from services.trust.domain.graph import TrustGraph

HEAD_OF = {"b": "a", "c": "a"}


def part(device: str, state: str) -> Participation:
    return Participation("tsk", 1, device, "own", "member", state, 10, b"")


@pytest.mark.parametrize(
    ("head", "member", "outcome", "expected"),
    [
        ("assigned", "delivered", "", "assigned"),
        ("assigned", "assigned", "", "assigned"),
        ("delivered", "delivered", "delivered", "delivered"),
        ("delivered", "assigned", "delivered", "assigned"),  # its report is still under way
        ("delivered", "delivered", "rejected", "rejected"),
        ("delivered", "assigned", "", "dropped"),
        ("dropped", "delivered", "", "orphaned"),
        ("declined", "assigned", "", "orphaned"),
        ("delivered", "declined", "", "declined"),
    ],
)
def test_a_members_state_depends_on_its_heads(head: str, member: str, outcome: str, expected: str) -> None:
    heard = {"b": (outcome, "")} if outcome else {}
    assert clusters.effective_state("b", {"a": head, "b": member}, HEAD_OF, heard) == expected


def test_devices_without_a_head_are_what_they_are() -> None:
    assert clusters.effective_state("a", {"a": "delivered"}, HEAD_OF, {}) == "delivered"


def test_a_head_is_lost_when_it_says_so_or_is_overdue_or_out_of_reach() -> None:
    states = {"a": "assigned", "b": "delivered", "c": "assigned"}
    assert clusters.lost_heads(states, HEAD_OF, overdue=False) == {}
    assert clusters.lost_heads(states, HEAD_OF, overdue=True) == {"a": ["b", "c"]}
    assert clusters.lost_heads(states, HEAD_OF, overdue=False, unreachable={"a"}) == {"a": ["b", "c"]}
    assert clusters.lost_heads(states | {"a": "declined"}, HEAD_OF, overdue=False) == {"a": ["b", "c"]}
    assert clusters.lost_heads(states | {"a": "delivered"}, HEAD_OF, overdue=True, unreachable={"a"}) == {}


def test_a_head_whose_members_have_all_left_is_no_loss() -> None:
    states = {"a": "declined", "b": "declined", "c": "dropped"}
    assert clusters.lost_heads(states, HEAD_OF, overdue=True) == {}


def test_verdicts_follow_the_heads_report() -> None:
    everybody = [part("a", "delivered"), part("b", "delivered"), part("c", "delivered"), part("d", "delivered")]
    heard = {"b": ("delivered", ""), "c": ("rejected", "its update is zero")}
    found = {p.device_id: (p.state, p.note) for p in clusters.verdicts(everybody, HEAD_OF | {"d": "x"}, heard)}
    assert found == {
        "a": ("delivered", ""),
        "b": ("delivered", ""),
        "c": ("rejected", "by its head: its update is zero"),
        "d": ("orphaned", "its head x delivered nothing"),
    }


def test_a_member_whose_letter_was_taken_counts_even_if_its_own_report_never_came() -> None:
    everybody = [part("a", "delivered"), part("b", "assigned"), part("c", "assigned")]
    heard = {"b": ("delivered", "")}
    states = {p.device_id: p.state for p in clusters.verdicts(everybody, HEAD_OF, heard)}
    assert states == {"a": "delivered", "b": "delivered", "c": "dropped"}


def test_conduct_is_recorded_within_clusters_only() -> None:
    everybody = [part(device, "delivered") for device in "abcdef"]
    heads = {"b": ["a"], "c": ["a"], "e": ["d", "gone"]}
    pairs = clusters.conduct_pairs(everybody, heads, seed=1, number=1)
    assert pairs == [("a", "b"), ("a", "c"), ("b", "c"), ("d", "e")]
    lost = clusters.conduct_pairs([*everybody, part("gone", "dropped")], heads, seed=1, number=1)
    assert set(lost) - set(pairs) == {("e", "gone")}


def test_payoffs_of_a_realised_cluster_agree_with_the_coalition_game() -> None:
    """Independent route: the topology's own evaluation of the same cluster."""
    draw = np.random.default_rng(5)
    direct = np.zeros((4, 4))
    direct[np.triu_indices(4, 1)] = draw.uniform(0.2, 1, 6)
    game = Game(TrustGraph.from_dense(direct + direct.T), draw.uniform(0.1, 20, 4), stakes=PlannedStakes(head_reward=2))
    planned = evaluate(game, range(4))
    names = "abcd"
    divided = clusters.divide(
        {names[k]: float(planned.quality[k]) for k in range(4)},
        {names[k]: float(evaluate(game, [k]).payoff[0]) for k in range(4)},
        names[planned.head],
        Stakes(0.52, 1.2, 2.0),
    )
    assert list(divided.values()) == pytest.approx(planned.payoff.tolist(), abs=1e-9)


def test_a_cluster_of_which_only_the_head_is_left_is_worth_a_device_alone() -> None:
    assert clusters.divide({"a": 96.8}, {"a": 32.4, "b": 30.0}, "a", Stakes(0.52, 1.2, 5.0)) == {"a": 32.4}


names = st.text("abcdefgh", min_size=1, max_size=3)


@given(st.dictionaries(names, st.floats(-5, 60), min_size=1), st.floats(0.001, 1e6))
def test_what_is_owed_sums_to_the_points_times_the_price_to_the_micro_credit(
    payoffs: dict[str, float], rate: float
) -> None:
    """Σ owed = ⌊Σ max(ψ, 0) · rate⌋ exactly, and nobody is more than one micro-credit from its own share."""
    found = clusters.owed(payoffs, rate, 0)
    exact = {device: max(Fraction(0), Fraction(value)) * Fraction(rate) for device, value in payoffs.items()}
    assert sum(found.values()) == math.floor(sum(exact.values()))
    assert all(abs(found[device] - exact[device]) < 1 for device in payoffs)


@given(st.dictionaries(names, st.floats(0.5, 60), min_size=1), st.integers(0, 10**12))
def test_without_a_price_the_whole_pot_is_shared(payoffs: dict[str, float], pot: int) -> None:
    assert sum(clusters.owed(payoffs, 0.0, pot).values()) == pot


def test_nothing_is_owed_when_nobody_earned_anything() -> None:
    assert clusters.owed({"a": -1.0, "b": 0.0}, 0.0, 100) == {"a": 0, "b": 0}
