"""The platform's plan: least total variance for a budget, and prices whose equilibrium it is (spec 2.3, 2.5)."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from services.pricing.domain.collection import Prices, collect, required
from services.pricing.domain.correlated_users import (
    Survey,
    equilibrium,
    hidden_variances,
    ideal_totals,
    marginal,
    privacy_cost,
    privacy_loss,
    utilities,
)

MODES: tuple[Prices, ...] = ("pivot", "even", "personal")


@st.composite
def surveys(draw: st.DrawFn, *, wide: bool = True) -> Survey:
    """Random surveys where each user cares for itself; `wide` lets one user carry all the noise."""
    n = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = np.triu(rng.uniform(0.5, 3, (n, n)), 1)
    care = rng.uniform(0, 0.3, (n, n)) * (rng.uniform(size=(n, n)) < 0.6) + np.diag(rng.uniform(0.05, 1, n))
    low = draw(st.floats(0.01, 0.5))
    high = n * math.exp(6.0) if wide else low * draw(st.floats(1.5, 20.0))
    return Survey(hidden_variances(weights + weights.T), care, 6.0, low, high)


def budget_at(survey: Survey, share: float) -> float:
    """A budget between the least-noise answer's and one with a single noisy user's; see `lean_budget_at`."""
    n = survey.users
    clean = float(required(survey, n * survey.variance_low).sum())
    noisy = float(required(survey, survey.variance_high + (n - 1) * survey.variance_low).sum())
    return noisy + share * (clean - noisy)


def lean_budget_at(survey: Survey, share: float) -> float:
    """The same down to the noisiest answer, where several users must be at q_hi."""
    n = survey.users
    clean = float(required(survey, n * survey.variance_low).sum())
    noisy = float(required(survey, n * survey.variance_high).sum())
    return noisy + share * (clean - noisy)


shares = st.floats(0.02, 0.98)


@settings(deadline=None)
@given(surveys(), shares, st.sampled_from(MODES))
def test_a_tight_plan_spends_the_budget_and_leaves_no_surplus(survey: Survey, share: float, mode: Prices) -> None:
    """Tight ⇒ Σ payments = B, every U_i = 0 to 1e-8, and Σ_ij s_ij l_j = B (spec 2.3, 2.5)."""
    budget = budget_at(survey, share)
    plan = collect(survey, budget, mode)
    assert plan.status == "tight"
    assert plan.tariff is not None
    offer = plan.tariff
    assert offer.variances.sum() == pytest.approx(plan.total, rel=1e-9)
    assert offer.payments.sum() == pytest.approx(budget, abs=1e-8)
    assert np.abs(offer.payments - privacy_cost(survey, plan.total)).max() < 1e-8
    assert np.abs(utilities(survey, offer.base, offer.slopes, offer.variances)).max() < 1e-8
    assert (survey.care @ privacy_loss(survey, plan.total)).sum() == pytest.approx(budget, abs=1e-8)
    assert (offer.variances >= survey.variance_low * (1 - 1e-9)).all()
    assert (offer.variances <= survey.variance_high * (1 + 1e-9)).all()
    assert (offer.slopes > 0).all()


@settings(deadline=None)
@given(surveys(), shares, st.sampled_from(MODES))
def test_the_prices_reach_the_planned_total(survey: Survey, share: float, mode: Prices) -> None:
    """θ → φ → equilibrium returns the same Λ (spec 2.5)."""
    plan = collect(survey, budget_at(survey, share), mode)
    assert plan.tariff is not None
    result = equilibrium(survey, ideal_totals(survey, plan.tariff.slopes))
    assert result.total == pytest.approx(plan.total, rel=1e-6)
    if mode == "pivot":
        assert result.variances == pytest.approx(plan.tariff.variances, rel=1e-6, abs=1e-9)


@settings(deadline=None)
@given(surveys(wide=False), shares, st.sampled_from(MODES))
def test_narrow_bounds_give_an_equilibrium_or_report_no_positive_prices(
    survey: Survey, share: float, mode: Prices
) -> None:
    assume(survey.users > 1)
    plan = collect(survey, lean_budget_at(survey, share), mode)
    if plan.tariff is None:
        assert plan.status == "no positive prices"
        assert mode != "personal"
        return
    f, c = marginal(survey, plan.total), required(survey, plan.total)
    offer = plan.tariff
    assert offer.variances.sum() == pytest.approx(plan.total, rel=1e-9)
    at_low = np.isclose(offer.variances, survey.variance_low, rtol=1e-9)
    at_high = np.isclose(offer.variances, survey.variance_high, rtol=1e-9)
    tolerance = 1e-7 * np.maximum(f, np.abs(offer.slopes))
    assert (offer.slopes[~at_high] >= f[~at_high] - tolerance[~at_high]).all()
    assert (offer.slopes[~at_low] <= f[~at_low] + tolerance[~at_low]).all()
    assert offer.payments == pytest.approx(c, abs=1e-8)


def some_pivot_exists(survey: Survey, total: float, positive: bool) -> bool:
    """Brute force over the inside user and every set of users at q_hi."""
    n, low, high = survey.users, survey.variance_low, survey.variance_high
    c, f = required(survey, total), marginal(survey, total)
    for k in range(n):
        others = [i for i in range(n) if i != k]
        for tops in range(n):
            inside = total - tops * high - (n - 1 - tops) * low
            if not low <= inside <= high:
                continue
            base = c[k] + f[k] * inside
            for top in combinations(others, tops):
                bottom = [i for i in others if i not in top]
                if all((base - c[i]) / low >= f[i] for i in bottom) and all(
                    (base - c[i]) / high <= f[i] and (not positive or base > c[i]) for i in top
                ):
                    return True
    return False


@settings(deadline=None)
@given(surveys(wide=False), shares, st.booleans())
def test_pivot_prices_are_found_whenever_brute_force_finds_some(survey: Survey, share: float, positive: bool) -> None:
    assume(survey.users <= 6)
    plan = collect(survey, lean_budget_at(survey, share), "pivot", positive=positive)
    assert (plan.tariff is not None) == some_pivot_exists(survey, plan.total, positive)


@settings(deadline=None)
@given(surveys(wide=False), shares)
def test_prices_always_exist_when_they_may_be_negative(survey: Survey, share: float) -> None:
    plan = collect(survey, lean_budget_at(survey, share), "pivot", positive=False)
    assert plan.status == "tight"
    assert plan.tariff is not None
    assert plan.tariff.variances.sum() == pytest.approx(plan.total, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(surveys(), shares, st.integers(0, 2**32))
def test_random_prices_never_find_a_smaller_total(survey: Survey, share: float, seed: int) -> None:
    """Random search over (θ, r) within the budget that keeps all users in never beats the plan (spec 2.5)."""
    budget = budget_at(survey, share)
    total = collect(survey, budget).total
    rng = np.random.default_rng(seed)
    for _ in range(100):
        slopes = marginal(survey, total) * 10.0 ** rng.uniform(-1, 1, survey.users)
        result = equilibrium(survey, ideal_totals(survey, slopes))
        base = float(np.max(slopes * result.variances + privacy_cost(survey, result.total)))  # just keeps all users in
        if base * survey.users - float(slopes @ result.variances) <= budget:
            assert result.total >= total * (1 - 1e-9)


@settings(max_examples=50, deadline=None)
@given(surveys(), shares, shares)
def test_more_money_means_less_noise(survey: Survey, one: float, other: float) -> None:
    less, more = sorted([budget_at(survey, one), budget_at(survey, other)])
    assert collect(survey, more).total <= collect(survey, less).total * (1 + 1e-12)


@settings(max_examples=50, deadline=None)
@given(surveys(), shares, st.floats(0.1, 10.0))
def test_scaling_care_and_budget_together_changes_nothing(survey: Survey, share: float, factor: float) -> None:
    budget = budget_at(survey, share)
    scaled = Survey(survey.hidden, survey.care * factor, survey.constant, survey.variance_low, survey.variance_high)
    assert collect(scaled, budget * factor).total == pytest.approx(collect(survey, budget).total, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(surveys(), st.sampled_from(MODES))
def test_enough_money_saturates_and_is_not_all_spent(survey: Survey, mode: Prices) -> None:
    budget = budget_at(survey, 1.0) + 1.0
    plan = collect(survey, budget, mode)
    assert plan.status == "saturated"
    assert plan.tariff is not None
    assert plan.tariff.variances.tolist() == [survey.variance_low] * survey.users
    assert plan.tariff.payments.sum() == pytest.approx(budget - 1.0, abs=1e-6)
    result = equilibrium(survey, ideal_totals(survey, plan.tariff.slopes))
    assert result.total == pytest.approx(plan.total, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(surveys())
def test_too_small_a_budget_is_infeasible_with_the_least_one_reported(survey: Survey) -> None:
    least = lean_budget_at(survey, 0.0)
    short = collect(survey, least - 0.1)
    assert (short.status, short.tariff) == ("infeasible", None)
    assert math.isnan(short.total)
    assert short.least_budget == pytest.approx(least)
    assert collect(survey, short.least_budget, "personal").status == "tight"


def test_without_an_upper_bound_any_budget_is_feasible() -> None:
    survey = Survey(np.ones(2), np.eye(2), 1.0, 0.1, math.inf)
    plan = collect(survey, -5.0)
    assert plan.status == "tight"
    assert plan.least_budget == pytest.approx(2 * (1 - 300 * math.log(10)))  # the largest number stands for infinity
    assert plan.total == pytest.approx(math.exp(3.5) - 1)  # 2(1 − ln(Λ + 1)) = −5


@pytest.mark.parametrize("mode", MODES)
def test_an_infinite_bound_prices_like_a_very_large_one(mode: Prices) -> None:
    rng = np.random.default_rng(0)
    care = rng.uniform(0, 1, (5, 5))
    unbounded = collect(Survey(np.ones(5), care, 10.0, 0.01, math.inf), 20.0, mode)
    bounded = collect(Survey(np.ones(5), care, 10.0, 0.01, 1e9), 20.0, mode)
    assert unbounded.status == "tight"
    assert unbounded.total == pytest.approx(bounded.total)
    assert unbounded.tariff is not None
    assert bounded.tariff is not None
    assert unbounded.tariff.payments == pytest.approx(bounded.tariff.payments)


def test_a_budget_that_needs_unbounded_noise_is_infeasible() -> None:
    survey = Survey(np.ones(1), np.full((1, 1), 1e-7), 1.0, 0.1, math.inf)
    assert collect(survey, -5.0).status == "infeasible"


def test_users_without_care_are_paid_nothing_and_add_least_noise() -> None:
    survey = Survey(np.ones(3), np.diag([1.0, 1.0, 0.0]), 3.0, 0.1, 50.0)
    for mode in MODES:
        plan = collect(survey, 2.0, mode)
        assert plan.status == "tight"
        assert plan.tariff is not None
        assert plan.tariff.payments[2] == pytest.approx(0.0, abs=1e-12)
        if mode != "personal":
            assert plan.tariff.variances[2] == 0.1
    carefree = Survey(np.ones(2), np.zeros((2, 2)), 3.0, 0.1, math.inf)
    assert collect(carefree, 0.0).status == "saturated"
    assert collect(carefree, -1.0).status == "infeasible"


def test_a_user_that_nothing_can_reveal_is_paid_nothing() -> None:
    """An infinite hidden variance makes the cost −∞; such a user is paid 0 and the others' plan is not disturbed."""
    alone = Survey(np.array([1.0, math.inf]), np.diag([1.0, 1.0]), 3.0, 0.1, 50.0)
    plan = collect(alone, 1.0)
    assert plan.status == "tight"
    assert plan.tariff is not None
    assert plan.tariff.payments.tolist() == [pytest.approx(1.0), pytest.approx(0.0)]
    assert plan.total == pytest.approx(math.exp(2.0) - 1)
