"""What the others' trust in a device amounts to, and when lying far outside says something of it."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.aggregation.domain.rules.outlying import DISTANCE, distances_from, is_outlying, multiples
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.domain.rules.weighting import trust_weights


@dataclass(frozen=True)
class Pairs:
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    trust: npt.NDArray[np.float64]


def pairs(edges: list[tuple[int, int, float]]) -> Pairs:
    a, b, trust = zip(*edges, strict=True) if edges else ((), (), ())
    return Pairs(np.array(a, np.int64), np.array(b, np.int64), np.array(trust, np.float64))


def test_without_known_devices_it_is_the_mean_of_the_others_trust() -> None:
    ties = pairs([(0, 1, 0.8), (0, 2, 0.4), (1, 2, 0.2)])
    assert trust_weights(4, ties) == pytest.approx([1.2 / 3, 1.0 / 3, 0.6 / 3, 0.0])
    assert trust_weights(1, pairs([])).tolist() == [1.0]
    assert trust_weights(3, pairs([])).tolist() == [0.0, 0.0, 0.0]


def test_a_walk_by_hand() -> None:
    """A line 0 – 1 – 2 of trust 1, 0 known: two steps end at 0 or 2, half each; 2 has degree 1, so rank ½, as 0."""
    result = trust_weights(3, pairs([(0, 1, 1.0), (1, 2, 1.0)]), [0])
    assert result.tolist() == [1.0, 0.0, 1.0]


def test_a_device_without_ties_to_those_known_has_no_say() -> None:
    result = trust_weights(5, pairs([(0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0), (3, 4, 1.0)]), [0])
    assert result[:3].min() > 0
    assert result[3:].tolist() == [0.0, 0.0]
    assert trust_weights(3, pairs([(1, 2, 1.0)]), [0]).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(10))
def test_three_sybils_for_every_two_honest_devices_get_little_say(seed: int) -> None:
    """40 honest devices, 60 sybils who trust each other fully, attack edges of at most 2 % of all; 3 devices known.

    Without known devices the sybils have the majority; with them, less than a third of all weight.
    """
    rng = np.random.default_rng(seed)
    honest = nx.watts_strogatz_graph(40, 8, 0.3, seed=seed)
    sybils = nx.relabel_nodes(nx.watts_strogatz_graph(60, 8, 0.3, seed=seed), lambda node: node + 40)
    edges = [(a, b, float(rng.uniform(0.5, 1))) for a, b in honest.edges] + [(a, b, 1.0) for a, b in sybils.edges]
    attack = max(1, int(0.02 * len(edges)))
    edges += [(int(rng.integers(40)), int(rng.integers(40, 100)), 0.9) for _ in range(attack)]
    ties = pairs(edges)
    without = trust_weights(100, ties)
    assert without[40:].sum() > without[:40].sum()
    known = trust_weights(100, ties, [0, 13, 26])
    assert known[40:].sum() < known[:40].sum() / 2
    assert np.median(known[:40]) > 0.5


@given(st.integers(2, 12), st.integers(0, 2**32))
def test_say_is_from_0_to_1_and_follows_devices_when_they_are_renamed(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = [(a, b, float(rng.uniform())) for a in range(size) for b in range(a) if rng.uniform() < 0.5]
    known = [0]
    result = trust_weights(size, pairs(edges), known)
    assert ((result >= 0) & (result <= 1)).all()
    order = rng.permutation(size)
    place = np.argsort(order)
    renamed = trust_weights(size, pairs([(int(place[a]), int(place[b]), t) for a, b, t in edges]), [int(place[0])])
    np.testing.assert_allclose(renamed, result[order], atol=1e-9)


def test_distances_are_given_in_medians() -> None:
    updates = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, -2.0], [60.0, 80.0]])
    away = distances_from(ArrayRows.of(updates), [np.zeros(1), np.zeros(1)])
    assert away.tolist() == [5.0, 1.0, 2.0, 100.0]
    assert multiples(away) == pytest.approx([5 / 3.5, 1 / 3.5, 2 / 3.5, 100 / 3.5])
    assert multiples(np.array([0.0, 0.0, 7.0])) == [0.0, 0.0, 0.0]


def test_far_outside_counts_only_in_three_rounds_running() -> None:
    far, near = {DISTANCE: 6.0}, {DISTANCE: 4.0}
    assert is_outlying([far, far, far, near])
    assert not is_outlying([far, far])
    assert not is_outlying([far, near, far, far])
    assert not is_outlying([far, {}, far])
