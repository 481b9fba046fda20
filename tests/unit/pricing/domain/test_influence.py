"""Influence: rows sum to one above the floor, and the matrix-free Σ is the dense one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from services.pricing.domain import influence
from services.pricing.domain.influence import InvalidInfluence, IsolatedDevice, Matrix, leakage, normalise, solve


@st.composite
def graphs(draw: st.DrawFn, largest: int = 9) -> Matrix:
    """Random weighted digraphs, sparse to full, weights over six decades; some devices may be isolated."""
    n = draw(st.integers(2, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = 10.0 ** rng.uniform(-3, 3, (n, n)) * (rng.uniform(size=(n, n)) < draw(st.floats(0.1, 1.0)))
    np.fill_diagonal(weights, 0.0)
    return weights


def by_definition(weights: Matrix, hops: int, discount: float) -> Matrix:
    """Σ_k λ^(k−1) W̃^k with numpy's own powers, diagonal zeroed at the end."""
    total = weights.sum(axis=1, keepdims=True)
    step = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    matrix = sum(discount ** (k - 1) * np.linalg.matrix_power(step, k) for k in range(1, hops + 1))
    assert isinstance(matrix, np.ndarray)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def test_a_rows_weights_are_divided_by_their_sum() -> None:
    assert normalise(np.array([[0, 1, 3], [2, 0, 0], [5, 5, 0.0]])).toarray().tolist() == [
        [0, 0.25, 0.75],
        [1, 0, 0],
        [0.5, 0.5, 0],
    ]


def test_the_floor_raises_low_edges_and_rescales_only_the_others() -> None:
    """Row (1, 1, 8)/10 with floor 0.15: two entries rise to 0.15, the third keeps 0.7. Clipping then dividing would
    leave 0.15/1.1 = 0.136, below the floor."""
    weights = np.zeros((4, 4))
    weights[0, 1:] = 1, 1, 8
    weights[1:, 0] = 1
    assert normalise(weights, floor=0.15).toarray()[0] == pytest.approx([0, 0.15, 0.15, 0.7])


def test_raising_one_edge_may_push_another_under_the_floor() -> None:
    """(10, 21, 69)/100, floor 0.205: the first rises, the others shrink by 0.795/0.9, and 0.21 falls below too."""
    weights = np.zeros((4, 4))
    weights[0, 1:] = 10, 21, 69
    weights[1:, 0] = 1
    assert normalise(weights, floor=0.205).toarray()[0] == pytest.approx([0, 0.205, 0.205, 0.59])


@settings(deadline=None)
@given(graphs(), st.floats(0.0, 1.0))
def test_rows_sum_to_one_the_floor_is_kept_and_no_edge_appears(weights: Matrix, share: float) -> None:
    """Spec 1.10: rows of W̃ sum to 1, floor kept, support kept."""
    degree = (weights > 0).sum(axis=1)
    floor = share / max(degree.max(), 1)
    rows = normalise(weights, floor=floor, isolated="keep").toarray()
    assert rows.sum(axis=1) == pytest.approx((degree > 0).astype(float), abs=1e-12)
    assert ((rows > 0) == (weights > 0)).all()
    assert (rows[weights > 0] >= floor * (1 - 1e-11)).all()
    above = rows > floor * (1 + 1e-9)
    for i in range(len(rows)):  # entries above the floor keep the row's proportions
        ratio = rows[i, above[i]] / weights[i, above[i]]
        assert ratio == pytest.approx(np.full(ratio.size, ratio[0] if ratio.size else 0.0), rel=1e-9)


@settings(deadline=None)
@given(graphs(), st.integers(1, 8), st.floats(0.05, 0.95))
def test_matrix_free_and_dense_sigma_agree_with_the_definition(weights: Matrix, hops: int, discount: float) -> None:
    """Spec 1.10: diag(Σ) = 0, row sums ≤ S, matrix-free Σx equals the dense one; so does Σᵀx."""
    expected = by_definition(weights, hops, discount)
    dense = leakage(weights, hops=hops, discount=discount, isolated="keep")
    free = leakage(weights, hops=hops, discount=discount, isolated="keep", dense_limit=0)
    assert free.matrix is None
    assert dense.matrix is not None
    assert dense.matrix == pytest.approx(expected, abs=1e-12)
    assert not dense.matrix.diagonal().any()
    assert (expected.sum(axis=1) <= dense.row_sum_limit + 1e-12).all()
    assert free.diagonal == pytest.approx(dense.diagonal, abs=1e-13)
    x = np.linspace(-1, 2, len(weights))
    for operator in (dense, free):
        assert operator.apply(x) == pytest.approx(expected @ x, abs=1e-12)
        assert operator.apply_transposed(x) == pytest.approx(expected.T @ x, abs=1e-12)


def test_before_zeroing_every_row_of_sigma_sums_to_its_limit() -> None:
    """Spec 1.2: row sums equal S = (1 − λ^K)/(1 − λ) exactly; here S = (1 − 0.5⁵)/0.5 = 1.9375."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.1, 1, (12, 12))
    np.fill_diagonal(weights, 0)
    operator = leakage(weights, hops=5, discount=0.5)
    assert operator.row_sum_limit == 1.9375
    assert operator.apply(np.ones(12)) + operator.diagonal == pytest.approx(np.full(12, 1.9375))


def test_a_truncated_diagonal_drops_only_its_longest_walks() -> None:
    weights = np.random.default_rng(2).uniform(0.1, 1, (10, 10))
    np.fill_diagonal(weights, 0)
    four = leakage(weights, hops=4, dense_limit=0)
    cut = leakage(weights, hops=5, dense_limit=0, diagonal_hops=4)
    assert cut.diagonal == pytest.approx(four.diagonal, abs=1e-15)
    assert cut.diagonal_hops == 4


def test_weights_so_small_that_walks_underflow_do_not_break_the_diagonal() -> None:
    weights = np.full((30, 30), 1e-200)
    weights[:, 0] = 1.0
    weights[0, 1] = 1.0
    np.fill_diagonal(weights, 0)
    free = leakage(weights, hops=6, dense_limit=0)
    assert free.diagonal == pytest.approx(leakage(weights, hops=6).diagonal, abs=1e-14)


@settings(max_examples=30, deadline=None)
@given(graphs(), st.floats(0.0, 0.45), st.booleans())
def test_the_iteration_solves_what_the_direct_method_solves(weights: Matrix, risk: float, transposed: bool) -> None:
    right = np.linspace(1, 2, len(weights))
    direct = solve(leakage(weights, isolated="keep"), risk, right, transposed=transposed)
    steps = solve(leakage(weights, isolated="keep", dense_limit=0), risk, right, transposed=transposed)
    assert direct.iterations == 0
    assert steps.values == pytest.approx(direct.values, abs=1e-11)


def test_krylov_solves_where_the_iteration_would_diverge() -> None:
    weights = np.random.default_rng(3).uniform(0.1, 1, (15, 15))
    np.fill_diagonal(weights, 0)
    right = np.arange(1.0, 16.0)
    direct = solve(leakage(weights), 0.9, right)
    krylov = solve(leakage(weights, dense_limit=0), 0.9, right)
    assert krylov.iterations > 0
    assert krylov.values == pytest.approx(direct.values, rel=1e-9)


def test_a_singular_system_is_named() -> None:
    """Two devices facing each other: Σ swaps with weight 1 + λ² + λ⁴ = 1.3125, so α = 1/1.3125 is singular."""
    pair = leakage(np.array([[0, 1], [1, 0.0]]))
    with pytest.raises(InvalidInfluence, match="singular"):
        solve(pair, 1 / 1.3125, np.ones(2))


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (np.zeros((0, 0)), "at least one"),
        (np.zeros((2, 3)), "square"),
        (np.zeros(3), "matrix"),
        (np.array([[0, -1], [1, 0.0]]), "negative"),
        (np.array([[0, np.nan], [1, 0.0]]), "finite"),
        (np.array([[0.5, 1], [1, 0.0]]), "itself"),
    ],
)
def test_an_invalid_graph_is_refused(weights: Matrix, match: str) -> None:
    with pytest.raises(InvalidInfluence, match=match):
        normalise(weights)


def test_an_isolated_device_is_refused_unless_kept() -> None:
    weights = np.array([[0, 1], [0, 0.0]])
    with pytest.raises(IsolatedDevice, match="device 1 has no incoming influence"):
        normalise(weights)
    assert normalise(weights, isolated="keep").toarray().tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize(
    "settings_given", [{"hops": 0}, {"discount": 1.0}, {"discount": 0.0}, {"floor": 0.6}, {"floor": -1}]
)
def test_settings_out_of_range_are_refused(settings_given: dict[str, float]) -> None:
    weights = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0.0]])
    with pytest.raises(InvalidInfluence):
        leakage(weights, **settings_given)  # type: ignore[arg-type]


def test_sparse_input_is_left_untouched() -> None:
    weights = sparse.csr_array(np.array([[0, 2], [4, 0.0]]))
    influence.normalise(weights)
    assert weights.toarray().tolist() == [[0, 2], [4, 0]]
