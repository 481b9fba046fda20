"""Properties of the lazy Metropolis walk on random connected graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.topology.domain.betta_network import pairs_to_adjacency
from services.topology.domain.mixing import (
    Bools,
    NotATopology,
    NotConnected,
    components,
    hitting_times,
    hitting_times_closed_form,
    lazy_metropolis,
    spectral_gap,
)
from services.topology.domain.plain_links import complete_links, ring_links


@st.composite
def connected(draw: st.DrawFn) -> Bools:
    count = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tree = [(int(rng.integers(0, i)), i) for i in range(1, count)]
    share = draw(st.floats(0, 1))
    return pairs_to_adjacency(count, tree) | _symmetric(rng.random((count, count)) < share)


def _symmetric(matrix: Bools) -> Bools:
    upper = np.triu(matrix, 1)
    return np.asarray(upper | upper.T, dtype=np.bool_)


@given(connected())
@settings(max_examples=60, deadline=None)
def test_the_matrix_is_symmetric_doubly_stochastic_lazy_and_positive(adjacency: Bools) -> None:
    """A symmetric, doubly stochastic, a_ii ≥ 1/2, eigenvalues in [0, 1]."""
    mixing = lazy_metropolis(adjacency)
    assert np.array_equal(mixing, mixing.T)
    assert np.allclose(mixing.sum(axis=1), 1)
    assert (mixing.diagonal() >= 0.5 - 1e-12).all()
    values = np.linalg.eigvalsh(mixing)
    assert values.min() >= -1e-12
    assert values.max() <= 1 + 1e-12


@given(connected())
@settings(max_examples=60, deadline=None)
def test_hitting_times_agree_both_ways_and_keep_their_bounds(adjacency: Bools) -> None:
    """Direct = closed form; row sums equal; 2(V−1) ≤ H ≤ 12V²; δ ≤ V/(2(V−1)); H ≥ (V−1)/u; δ ≤ uV/(V−1);
    Hδ ≥ V/(V−1)."""
    mixing = lazy_metropolis(adjacency)
    direct, closed = hitting_times(mixing), hitting_times_closed_form(mixing)
    assert np.allclose(direct, closed, rtol=1e-9, atol=1e-8)
    count, gap, longest = len(mixing), spectral_gap(mixing), closed.max()
    assert np.allclose(closed.sum(axis=1), closed.sum(axis=1)[0], rtol=1e-9)
    assert 2 * (count - 1) * (1 - 1e-9) <= longest <= 12 * count**2
    assert gap <= count / (2 * (count - 1)) * (1 + 1e-9)
    leaving = (1 - mixing.diagonal()).min()
    assert longest >= (count - 1) / leaving * (1 - 1e-9)
    assert gap <= count / (count - 1) * leaving * (1 + 1e-9)
    assert longest * gap >= count / (count - 1) * (1 - 1e-9)
    complete = adjacency.sum() == count * (count - 1)
    assert complete == (longest <= 2 * (count - 1) * (1 + 1e-9))


@given(connected(), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_gossip_preserves_the_mean_and_contracts_by_the_gap(adjacency: Bools, seed: int) -> None:
    """No noise, zero gradient: the mean is preserved and the deviation contracts by at most 1 − δ."""
    mixing = lazy_metropolis(adjacency)
    values = np.random.default_rng(seed).normal(size=len(mixing))
    mixed = mixing @ values
    assert mixed.mean() == pytest.approx(values.mean(), abs=1e-12)
    before, after = np.linalg.norm(values - values.mean()), np.linalg.norm(mixed - mixed.mean())
    assert after <= (1 - spectral_gap(mixing)) * before + 1e-12


def test_one_device_and_two() -> None:
    one = lazy_metropolis(np.zeros((1, 1), dtype=bool))
    assert (one.tolist(), spectral_gap(one), hitting_times_closed_form(one).tolist()) == ([[1.0]], 1.0, [[0.0]])
    two = lazy_metropolis(pairs_to_adjacency(2, [(0, 1)]))
    assert two.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert spectral_gap(two) == pytest.approx(1.0)
    assert hitting_times(two).tolist() == pytest.approx(np.array([[0, 2], [2, 0]]))


def test_the_ring_and_the_complete_graph_have_their_known_gaps() -> None:
    """Ring: δ = (1 − cos(2π/V))/2, H = 2⌊V/2⌋⌈V/2⌉. Complete: δ = V/(2(V−1)), H = 2(V−1)."""
    ring = lazy_metropolis(pairs_to_adjacency(9, ring_links(9)))
    assert spectral_gap(ring) == pytest.approx((1 - np.cos(2 * np.pi / 9)) / 2)
    assert hitting_times(ring).max() == pytest.approx(2 * 4 * 5)
    full = lazy_metropolis(pairs_to_adjacency(7, complete_links(7)))
    assert spectral_gap(full) == pytest.approx(7 / 12)
    assert hitting_times_closed_form(full).max() == pytest.approx(12)


def test_wrong_graphs_and_matrices_are_refused_with_the_reason() -> None:
    with pytest.raises(NotATopology, match="one direction"):
        lazy_metropolis(np.array([[False, True], [False, False]]))
    with pytest.raises(NotATopology, match="itself"):
        lazy_metropolis(np.eye(2, dtype=bool))
    with pytest.raises(NotATopology, match="shape"):
        lazy_metropolis(np.zeros((0, 0), dtype=bool))
    with pytest.raises(NotATopology, match="sum to 1"):
        spectral_gap(np.array([[0.5, 0.4], [0.4, 0.5]]))
    with pytest.raises(NotATopology, match="negative"):
        hitting_times(np.array([[1.5, -0.5], [-0.5, 1.5]]))
    with pytest.raises(NotConnected, match="2 parts"):
        hitting_times_closed_form(np.eye(2))
    assert components(pairs_to_adjacency(5, [(0, 3), (1, 4)])) == [[0, 3], [1, 4], [2]]
