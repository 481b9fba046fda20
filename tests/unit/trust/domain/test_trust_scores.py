"""Direct, indirect and combined trust: invariants of the spec, brute force on tiny graphs, refused input."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.trust.domain import search
from services.trust.domain.graph import Floats, InvalidTrustGraph, Paths, TrustGraph, UnknownNode
from services.trust.domain.parameters import NEUTRAL, InvalidTrustParameters, TrustParameters
from services.trust.domain.scores import (
    Interaction,
    InvalidInteraction,
    best_path,
    combine,
    direct_trust,
    indirect_trust,
    trust_between,
    trust_from,
    trust_matrix,
    trust_rows,
)

WEIGHTS = st.sampled_from([0.0, 0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0]) | st.floats(0, 1)
INTERACTIONS = st.lists(
    st.builds(Interaction, st.booleans(), st.floats(0, 10), st.floats(0, 100)), min_size=0, max_size=8
)


@st.composite
def matrices(draw: st.DrawFn, most: int = 7) -> Floats:
    size = draw(st.integers(1, most))
    matrix = np.zeros((size, size))
    for i, j in itertools.combinations(range(size), 2):
        matrix[i, j] = matrix[j, i] = draw(WEIGHTS)
    return matrix


@pytest.fixture(params=["interpreted", "compiled"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The search as the interpreter and as numba run it."""
    if request.param == "compiled":
        for paths in Paths:
            search.warm_up(paths)
    else:
        monkeypatch.setattr(search, "_compiled", {})
        monkeypatch.setattr(search, "EDGES_WORTH_COMPILING", math.inf)
    return str(request.param)


def brute_force(direct: Floats, source: int, target: int) -> float:
    """Largest product over every simple path of the fewest edges, by enumerating all of them."""
    size = len(direct)
    inner = [node for node in range(size) if node not in (source, target)]
    for length in range(size - 1):
        products = [
            math.prod(float(direct[a, b]) for a, b in itertools.pairwise((source, *middle, target)))
            for middle in itertools.permutations(inner, length)
            if all(direct[a, b] > 0 for a, b in itertools.pairwise((source, *middle, target)))
        ]
        if products:
            return max(products)
    return 0.0


@given(matrices(most=6))
def test_indirect_trust_equals_brute_force_over_all_shortest_paths(direct: Floats) -> None:
    """τ equals brute force over all shortest paths (spec §7)."""
    graph = TrustGraph.from_dense(direct)
    for source in range(len(direct)):
        result = indirect_trust(graph, source)
        for target in range(len(direct)):
            expected = 0.0 if source == target else brute_force(direct, source, target)
            assert result[target] == pytest.approx(expected, rel=1e-12, abs=0)


def best_graph(direct: Floats) -> TrustGraph:
    return replace(TrustGraph.from_dense(direct), paths=Paths.BEST)


def indirect_matrix(graph: TrustGraph) -> Floats:
    return trust_rows(graph, np.arange(graph.size), 0.8).trust


@pytest.mark.usefixtures("engine")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrices(most=6))
def test_best_of_three_ties_equals_brute_force_and_its_path_explains_it(direct: Floats) -> None:
    """Largest product over paths of at most 3 edges (spec §1.3a)."""
    graph = best_graph(direct)
    for source, target in itertools.permutations(range(len(direct)), 2):
        inner = [node for node in range(len(direct)) if node not in (source, target)]
        expected = max(
            math.prod(float(direct[a, b]) for a, b in itertools.pairwise((source, *middle, target)))
            for length in range(3)
            for middle in itertools.permutations(inner, length)
        )
        assert indirect_trust(graph, source)[target] == pytest.approx(expected, rel=1e-12, abs=0)
        path = best_path(graph, source, target)
        if path is None or not expected:  # products too small for a float
            assert not expected
        else:
            assert (path.devices[0], path.devices[-1]) == (source, target)
            assert len(path.hops) <= 3
            assert math.prod(path.hops) == pytest.approx(expected, rel=1e-12)


@given(matrices(), st.data())
def test_by_best_paths_no_new_or_stronger_tie_lowers_anybodys_trust(direct: Floats, data: st.DataObject) -> None:
    """By the shortest a weak new tie may: it replaces the strong chain it cuts short (spec §1.3)."""
    if len(direct) > 1:
        i, j = data.draw(st.permutations(range(len(direct))))[:2]
        raised = direct.copy()
        raised[i, j] = raised[j, i] = data.draw(st.floats(direct[i, j], 1))
        assert (indirect_matrix(best_graph(raised)) >= indirect_matrix(best_graph(direct)) - 1e-12).all()


def test_weak_new_tie_lowers_trust_by_shortest_path_and_not_by_best() -> None:
    chain = np.zeros((4, 4))
    for a, b, e in ((0, 1, 0.9), (1, 2, 0.9), (2, 3, 0.9)):
        chain[a, b] = chain[b, a] = e
    tied = chain.copy()
    tied[0, 2] = tied[2, 0] = 0.01
    shortest = [indirect_matrix(TrustGraph.from_dense(item))[0, 3] for item in (chain, tied)]
    best = [indirect_matrix(best_graph(item))[0, 3] for item in (chain, tied)]
    assert shortest == pytest.approx([0.2 * 0.729, 0.2 * 0.009])
    assert best == pytest.approx([0.2 * 0.729, 0.2 * 0.729])


@given(matrices(), st.floats(0, 1))
def test_all_trust_is_symmetric_and_in_range(direct: Floats, weight: float) -> None:
    """e, τ, α in [0, 1], symmetric (spec §7): to the bit, and with diagonals 0, 0, 1."""
    result = trust_matrix(direct, weight)
    for matrix, diagonal in ((result.direct, 0), (result.indirect, 0), (result.trust, 1)):
        assert np.array_equal(matrix, matrix.T)
        assert ((matrix >= 0) & (matrix <= 1)).all()
        assert (np.diag(matrix) == diagonal).all()


@given(matrices(), st.floats(0, 1))
def test_neighbours_have_direct_trust_and_strangers_at_most_indirect(direct: Floats, weight: float) -> None:
    """Adjacent: α = e for every ω. Non-adjacent: α = (1−ω) τ (spec §1.3)."""
    result = trust_matrix(direct, weight)
    adjacent = direct > 0
    assert np.array_equal(result.trust[adjacent], direct[adjacent])
    apart = ~adjacent & ~np.eye(len(direct), dtype=bool)
    assert result.trust[apart] == pytest.approx((1 - weight) * result.indirect[apart])


@given(matrices(), st.randoms(use_true_random=False))
def test_relabelling_devices_permutes_everything(direct: Floats, random: object) -> None:
    """Relabelling users permutes everything (spec §7)."""
    order = np.random.default_rng(hash(random) % 2**32).permutation(len(direct))
    plain, moved = trust_matrix(direct, 0.8), trust_matrix(direct[np.ix_(order, order)], 0.8)
    assert moved.trust == pytest.approx(plain.trust[np.ix_(order, order)], rel=1e-12)


@given(matrices(), st.data())
def test_raising_one_tie_never_lowers_any_indirect_trust(direct: Floats, data: st.DataObject) -> None:
    """Monotone in e for a fixed edge set (spec A3)."""
    ties = np.argwhere(np.triu(direct) > 0)
    if len(ties):
        i, j = ties[data.draw(st.integers(0, len(ties) - 1))]
        raised = direct.copy()
        raised[i, j] = raised[j, i] = data.draw(st.floats(direct[i, j], 1))
        before, after = trust_matrix(direct, 0.8).indirect, trust_matrix(raised, 0.8).indirect
        assert (after >= before * (1 - 1e-12)).all()


@given(matrices())
def test_a_path_explains_the_indirect_trust_hop_by_hop(direct: Floats) -> None:
    graph = TrustGraph.from_dense(direct)
    indirect = trust_matrix(direct, 0.8).indirect
    for a, b in itertools.product(range(len(direct)), repeat=2):
        path = best_path(graph, a, b)
        if path is None:
            assert indirect[a, b] == 0 or a == b
            continue
        assert (path.devices[0], path.devices[-1]) == (a, b)
        assert path.hops == tuple(direct[x, y] for x, y in itertools.pairwise(path.devices))
        assert path.indirect == indirect[a, b] == pytest.approx(math.prod(path.hops))


def test_search_agrees_with_networkx_on_a_random_graph(engine: str) -> None:
    rng = np.random.default_rng(3)
    net = nx.gnm_random_graph(60, 130, seed=3)
    ends = np.array(net.edges)
    graph = TrustGraph.from_ties(60, ends[:, 0], ends[:, 1], rng.uniform(0.05, 1, len(ends)))
    for source, target in itertools.combinations(range(0, 60, 7), 2):
        expected = 0.0
        if nx.has_path(net, source, target):
            paths = nx.all_shortest_paths(net, source, target)
            expected = max(math.prod(graph.direct(a, b) for a, b in itertools.pairwise(path)) for path in paths)
        assert indirect_trust(graph, source)[target] == pytest.approx(expected, rel=1e-12)
        assert trust_between(graph, source, target, 0.0) == trust_between(graph, target, source, 0.0)


def test_rows_of_some_participants_are_rows_of_the_whole_matrix(engine: str) -> None:
    rng = np.random.default_rng(4)
    direct = np.triu(rng.uniform(0, 1, (40, 40)) * (rng.uniform(size=(40, 40)) < 0.08), 1)
    direct += direct.T
    whole = trust_matrix(direct, 0.8)
    chosen = [31, 2, 17, 5]
    some = trust_rows(TrustGraph.from_dense(direct), chosen, 0.8)
    for part, full in ((some.direct, whole.direct), (some.indirect, whole.indirect), (some.trust, whole.trust)):
        assert np.array_equal(part, full[np.ix_(chosen, chosen)])
    assert trust_from(TrustGraph.from_dense(direct), 31, 0.8)[chosen] == pytest.approx(some.trust[0], rel=1e-12)


def test_a_product_that_underflows_still_counts_as_reached() -> None:
    graph = TrustGraph.from_ties(4, [0, 1, 2], [1, 2, 3], [1e-200, 1e-200, 1.0])
    assert indirect_trust(graph, 0).tolist() == [0.0, 1e-200, 0.0, 0.0]
    path = best_path(graph, 0, 3)
    assert path is not None
    assert path.devices == (0, 1, 2, 3)


@given(INTERACTIONS, st.floats(0, 1), st.floats(0.01, 5), st.floats(0.1, 5), st.floats(0, 50))
def test_direct_trust_only_falls_with_time_and_penalty(
    history: list[Interaction], decay: float, penalty: float, full: float, later: float
) -> None:
    """e non-increasing in ν; in t while its balance is not negative, that is always after clamping (spec §7)."""
    parameters = TrustParameters(decay, penalty, full)
    now = direct_trust(history, 100, parameters)
    assert 0 <= now <= 1
    assert direct_trust(history, 100 + later, parameters) <= now + 1e-12
    assert direct_trust(history, 100, TrustParameters(decay, penalty * 2, full)) <= now + 1e-12


@given(INTERACTIONS, st.floats(0, 10), st.floats(0, 10))
def test_a_longer_good_interaction_never_lowers_trust(history: list[Interaction], short: float, extra: float) -> None:
    """e non-decreasing in positive durations (spec §7; fails for the printed rule when D ≠ 1, A1)."""
    parameters = TrustParameters(0.01, 1.5, 4.0)
    one = direct_trust([*history, Interaction(True, short, 50)], 100, parameters)
    other = direct_trust([*history, Interaction(True, short + extra, 50)], 100, parameters)
    assert other >= one - 1e-12


@pytest.mark.parametrize(
    "bad",
    [
        Interaction(True, -1, 0),
        Interaction(True, math.nan, 0),
        Interaction(True, 1, 11),
        Interaction(True, 1, math.nan),
    ],
)
def test_a_bad_interaction_is_refused(bad: Interaction) -> None:
    with pytest.raises(InvalidInteraction, match=str(bad.duration_seconds if bad.at == 0 else bad.at)):
        direct_trust([bad], 10, NEUTRAL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("decay_rate", -1),
        ("decay_rate", math.inf),
        ("penalty", 0),
        ("full_duration_seconds", 0),
        ("direct_weight", 1.1),
        ("direct_weight", math.nan),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidTrustParameters, match=name):
        replace(NEUTRAL, **cast(Any, {name: value}))


@pytest.mark.parametrize(
    ("a", "b", "values", "says"),
    [
        ([0], [0], [0.5], r"\(0, 0, 0.5\)"),
        ([0], [3], [0.5], r"0\.\.2"),
        ([0], [1], [1.5], "1.5"),
        ([0], [1], [math.nan], "nan"),
        ([0, 1], [1, 0], [0.5, 0.5], "more than once"),
        ([0, 1], [1], [0.5], "one length"),
    ],
)
def test_ties_that_are_no_graph_are_refused(a: list[int], b: list[int], values: list[float], says: str) -> None:
    with pytest.raises(InvalidTrustGraph, match=says):
        TrustGraph.from_ties(3, a, b, values)


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        ([[0, 1]], "1×2"),
        ([[0, 1], [1]], "different lengths"),
        ([[0, 0.5], [0.4, 0]], "symmetric"),
        ([[0, -1], [-1, 0]], r"\[0, 1\]"),
    ],
)
def test_a_matrix_that_is_no_graph_is_refused(matrix: object, says: str) -> None:
    with pytest.raises(InvalidTrustGraph, match=says):
        trust_matrix(matrix, 0.8)  # type: ignore[arg-type]


def test_a_graph_answers_for_its_rows_and_refuses_others() -> None:
    graph = TrustGraph.from_ties(4, [2, 0, 1], [0, 1, 2], [0.5, 0.25, 0.0])
    assert (graph.size, graph.ties, graph.degrees.tolist()) == (4, 2, [2, 1, 1, 0])
    assert list(graph.edges()) == [(0, 1, 0.25), (0, 2, 0.5)]
    assert (graph.direct(2, 0), graph.direct(1, 2), graph.direct(3, 3)) == (0.5, 0.0, 0.0)
    for call in (lambda: graph.direct(0, 4), lambda: indirect_trust(graph, -1), lambda: best_path(graph, 0, 9)):
        with pytest.raises(UnknownNode, match=r"0\.\.3"):
            call()


def test_a_device_trusts_itself_and_has_no_path_to_itself() -> None:
    graph = TrustGraph.from_ties(2, [0], [1], [0.5])
    assert trust_between(graph, 1, 1, 0.8) == 1.0
    assert best_path(graph, 1, 1) is None


def test_weights_outside_the_unit_interval_are_refused() -> None:
    with pytest.raises(ValueError, match="direct_weight"):
        combine(np.zeros(1), np.zeros(1), 1.2)


def test_participants_must_be_distinct() -> None:
    with pytest.raises(ValueError, match="distinct"):
        trust_rows(TrustGraph.from_ties(2, [0], [1], [0.5]), [1, 1], 0.8)


def test_an_empty_graph_has_no_trust() -> None:
    result = trust_matrix([], 0.8)
    assert result.trust.shape == result.direct.shape == result.indirect.shape == (0, 0)
