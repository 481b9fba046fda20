"""Survey users: hidden variances, ideal totals and an equilibrium whose total is unique (spec 2.2, 2.5)."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.pricing.domain.correlated_users import (
    InvalidSurvey,
    Survey,
    VarianceModel,
    accuracy,
    best_response,
    equilibrium,
    hidden_variances,
    ideal_totals,
    marginal,
    privacy_cost,
    privacy_loss,
    utilities,
)
from services.pricing.domain.influence import Matrix


@st.composite
def correlations(draw: st.DrawFn, smallest: int = 2, largest: int = 8) -> Matrix:
    """Connected weighted graphs: a ring and random chords."""
    n = draw(st.integers(smallest, largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = np.triu(rng.uniform(0.1, 3, (n, n)) * (rng.uniform(size=(n, n)) < 0.5), 1)
    weights[np.arange(n - 1), np.arange(1, n)] = rng.uniform(0.1, 3, n - 1)
    return weights + weights.T


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    correlation = draw(correlations())
    n = len(correlation)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    care = rng.uniform(0, 1, (n, n)) * (rng.uniform(size=(n, n)) < draw(st.floats(0.2, 1.0)))
    low = draw(st.floats(0.01, 1.0))
    return Survey(hidden_variances(correlation), care, 5.0, low, low * draw(st.floats(1.5, 100.0)))


@settings(deadline=None)
@given(correlations())
def test_the_exact_variance_is_never_below_the_collapsed_one(correlation: Matrix) -> None:
    """Cauchy-Schwarz: exact ≥ paper's; and one inverse gives what one solve per user gives (spec 2.5)."""
    exact, paper = hidden_variances(correlation, "exact"), hidden_variances(correlation)
    assert (exact >= paper * (1 - 1e-9)).all()
    n = len(correlation)
    laplacian = np.diag(correlation.sum(axis=1)) - correlation
    for i in range(n):
        others = np.arange(n) != i
        solved = np.linalg.solve(laplacian[np.ix_(others, others)], np.ones(n - 1)).sum()
        assert exact[i] == pytest.approx(solved, rel=1e-8)
    assert exact == pytest.approx(n**2 * np.diagonal(np.linalg.pinv(laplacian)), rel=1e-7)


@settings(deadline=None)
@given(correlations(smallest=3), st.integers(0, 2))
def test_with_known_data_the_exact_variance_stays_above_the_collapsed(correlation: Matrix, known: int) -> None:
    exact = hidden_variances(correlation, "exact", known=(known,))
    assert (exact >= hidden_variances(correlation, "collapsed", known=(known,)) * (1 - 1e-9)).all()


def test_equal_weights_make_paper_and_exact_agree() -> None:
    complete = 2.0 * (np.ones((5, 5)) - np.eye(5))
    assert hidden_variances(complete, "exact") == pytest.approx(hidden_variances(complete))
    assert hidden_variances(complete) == pytest.approx(np.full(5, 16 / 8))


def test_two_known_users_on_a_complete_graph_of_six() -> None:
    """Spec 2.1: the paper's formula says 1.8, the cut 1.0 (three unknown others, nine unit edges to the rest)."""
    complete = np.ones((6, 6)) - np.eye(6)
    assert hidden_variances(complete, "paper", known=(4, 5))[0] == pytest.approx(1.8)
    assert hidden_variances(complete, "collapsed", known=(4, 5))[0] == pytest.approx(1.0)
    assert hidden_variances(complete, "exact", known=(4, 5))[0] == pytest.approx(1.0)


def test_degenerate_variances_have_names() -> None:
    """One user or all known: 0. No correlation: infinite."""
    models: tuple[VarianceModel, ...] = ("paper", "collapsed", "exact")
    for model in models:
        assert hidden_variances(np.zeros((1, 1)), model).tolist() == [0.0]
        assert hidden_variances(np.zeros((2, 2)), model).tolist() == [math.inf, math.inf]
        assert hidden_variances(np.array([[0, 1], [1, 0.0]]), model, known=(1,))[0] == 0.0
    split: Matrix = np.kron(np.eye(2), np.array([[0, 1], [1, 0.0]]))
    assert np.isinf(hidden_variances(split, "exact")).all()
    assert hidden_variances(split).tolist() == [9.0] * 4
    assert hidden_variances(split, "exact", known=(2,))[0] == pytest.approx(
        2.0
    )  # the others are tied to known data only


@pytest.mark.parametrize(
    ("correlation", "match"),
    [
        (np.zeros((0, 0)), "at least one"),
        (np.zeros((2, 3)), "square"),
        (np.array([[0, 1], [2, 0.0]]), "symmetric"),
        (np.array([[0, -1], [-1, 0.0]]), "negative"),
        (np.array([[1, 1], [1, 0.0]]), "diagonal"),
        (np.array([[0, np.inf], [np.inf, 0]]), "finite"),
    ],
)
def test_an_invalid_correlation_is_refused(correlation: Matrix, match: str) -> None:
    with pytest.raises(InvalidSurvey, match=match):
        hidden_variances(correlation)
    with pytest.raises(InvalidSurvey, match="known"):
        hidden_variances(np.zeros((2, 2)), known=(2,))


@settings(deadline=None)
@given(surveys(), st.integers(0, 2**32))
def test_ideal_totals_are_the_roots_of_the_marginal(survey: Survey, seed: int) -> None:
    slopes = 10.0 ** np.random.default_rng(seed).uniform(-3, 2, survey.users)
    ideals = ideal_totals(survey, slopes)
    for i in range(survey.users):
        if survey.care[i].any():
            assert marginal(survey, ideals[i])[i] == pytest.approx(slopes[i], rel=1e-9)
        else:
            assert ideals[i] == -math.inf


def test_ideal_totals_at_the_edges() -> None:
    survey = Survey(np.array([1.0, 2.0]), np.array([[1, 0], [0, 0.0]]))
    assert ideal_totals(survey, np.array([0.0, 1.0])).tolist() == [math.inf, -math.inf]
    assert ideal_totals(survey, np.array([2.0, -1.0])).tolist() == [-0.5, math.inf]  # negative: always q_lo


def test_a_best_response_lives_in_variances() -> None:
    """Spec 2.2: φ = 6, the others at σ = 1.5 each: q = 6 − 4.5 = 1.5, σ = 1.2247; the printed rule gives 3."""
    survey = Survey(np.ones(3), np.eye(3), variance_low=0.01, variance_high=100.0)
    assert math.sqrt(best_response(survey, 6.0, 2 * 1.5**2)) == pytest.approx(1.2247, abs=5e-5)
    assert 6.0 - 2 * 1.5 == 3.0


@settings(max_examples=60, deadline=None)
@given(surveys(), st.integers(0, 2**32))
def test_no_user_gains_at_the_equilibrium(survey: Survey, seed: int) -> None:
    """No user gains on a 1600-point grid (spec 2.5)."""
    rng = np.random.default_rng(seed)
    middle = survey.users * survey.variance_low * 3
    slopes = marginal(survey, middle) * rng.uniform(0.3, 3, survey.users) + 1e-9
    result = equilibrium(survey, ideal_totals(survey, slopes))
    assert result.total == pytest.approx(result.variances.sum(), rel=1e-9)
    before = utilities(survey, 1.0, slopes, result.variances)
    grid = np.linspace(survey.variance_low, survey.variance_high, 1600)
    for i in range(survey.users):
        others = result.variances.sum() - result.variances[i]
        cost = (survey.constant - np.log(others + grid[:, None] + survey.hidden)) @ survey.care[i]
        assert (1.0 - slopes[i] * grid - cost).max() <= before[i] + 1e-8


@settings(max_examples=40, deadline=None)
@given(surveys(), st.integers(0, 2**32))
def test_best_response_dynamics_reach_the_same_total_from_anywhere(survey: Survey, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = survey.variance_low, survey.variance_high
    ideals = rng.uniform(survey.users * low, survey.users * high, survey.users)
    # Two users with almost equal ideals pass each other by their difference in each sweep: it must not be tiny.
    assume(np.diff(np.sort(ideals)).min(initial=math.inf) > (high - low) / 100)
    total = equilibrium(survey, ideals).total
    for _ in range(3):
        q = rng.uniform(low, high, survey.users)
        for _ in range(300):
            for i in range(survey.users):
                q[i] = best_response(survey, ideals[i], q.sum() - q[i])
        assert q.sum() == pytest.approx(total, rel=1e-6)


@settings(deadline=None)
@given(surveys(), st.integers(0, 2**32))
def test_a_larger_ideal_means_no_less_noise(survey: Survey, seed: int) -> None:
    """[CAPP] Claim 1, and the two corner cases in the right units."""
    rng = np.random.default_rng(seed)
    n, low, high = survey.users, survey.variance_low, survey.variance_high
    ideals = rng.uniform(n * low, n * high, n)
    q = equilibrium(survey, ideals).variances
    assert (np.diff(q[np.argsort(ideals)]) >= -1e-12).all()
    assert equilibrium(survey, np.full(n, n * low * 0.9)).variances.tolist() == [low] * n
    assert equilibrium(survey, np.full(n, n * high * 1.1)).variances.tolist() == [high] * n


def test_ties_share_the_remainder_equally_and_say_so() -> None:
    survey = Survey(np.ones(3), np.eye(3), variance_low=1.0, variance_high=10.0)
    result = equilibrium(survey, np.array([9.0, 9.0, 2.0]))
    assert result.variances.tolist() == [4.0, 4.0, 1.0]
    assert result.total == 9.0
    assert not result.unique
    assert equilibrium(survey, np.array([9.0, 8.0, 2.0])).unique


def test_losses_and_costs_by_hand() -> None:
    """C = 2, Λ = 1, v = (e − 1, ∞): losses 2 − 1 = 1 and −∞; care for the first alone costs 1 per unit."""
    survey = Survey(np.array([math.e - 1, math.inf]), np.array([[3.0, 0.0], [0.0, 0.0]]), constant=2.0)
    assert privacy_loss(survey, 1.0).tolist() == [pytest.approx(1.0), -math.inf]
    assert privacy_cost(survey, 1.0).tolist() == [pytest.approx(3.0), 0.0]
    assert marginal(survey, 1.0).tolist() == [pytest.approx(3 / math.e), 0.0]


def test_accuracy_is_chebyshevs_and_never_negative() -> None:
    assert accuracy(50.0, 10.0) == 0.5
    assert accuracy(200.0, 10.0) == 0.0
    with pytest.raises(InvalidSurvey, match="error"):
        accuracy(1.0, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"care": np.ones((3, 2))},
        {"care": np.array([[1, -1], [0, 1.0]])},
        {"hidden": np.array([1.0, -1.0])},
        {"hidden": np.zeros(0)},
        {"variance_low": 0.0},
        {"variance_low": 2.0, "variance_high": 1.0},
        {"constant": math.nan},
    ],
)
def test_an_invalid_survey_is_refused(change: dict[str, object]) -> None:
    values: dict[str, object] = {"hidden": np.ones(2), "care": np.eye(2), **change}
    with pytest.raises(InvalidSurvey):
        Survey(**values)  # type: ignore[arg-type]
