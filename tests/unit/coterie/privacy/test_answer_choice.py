"""The survey user's own decision agrees with the platform's model of it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.answer_choice import decide, ideal_total, utility
from services.pricing.domain.collection import collect
from services.pricing.domain.correlated_users import Survey, ideal_totals, utilities


def survey(seed: int, n: int = 5) -> Survey:
    rng = np.random.default_rng(seed)
    care = rng.uniform(0, 0.5, (n, n)) * (rng.uniform(size=(n, n)) < 0.6) + 0.2 * np.eye(n)
    return Survey(rng.uniform(0.5, 5, n), care, 6.0, 0.05, math.exp(6))


@settings(deadline=None)
@given(st.integers(0, 1000), st.floats(-3, 2))
def test_a_user_alone_finds_the_models_ideal_total(seed: int, exponent: float) -> None:
    model = survey(seed)
    slope = 10.0**exponent
    expected = ideal_totals(model, np.full(model.users, slope))
    for i in range(model.users):
        assert ideal_total(slope, model.care[i], model.hidden) == pytest.approx(expected[i], rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_users_deciding_alone_keep_to_the_pivot_plan(seed: int) -> None:
    model = survey(seed)
    plan = collect(model, 5.0)
    assert plan.tariff is not None
    offer = plan.tariff
    assert isinstance(offer.base, float)
    for i in range(model.users):
        answer = decide(
            offer.base,
            float(offer.slopes[i]),
            float(offer.variances.sum() - offer.variances[i]),
            care=model.care[i],
            hidden=model.hidden,
            variance_low=model.variance_low,
            variance_high=model.variance_high,
        )
        assert answer.variance == pytest.approx(offer.variances[i], rel=1e-6)
        assert answer.deviation == pytest.approx(math.sqrt(offer.variances[i]), rel=1e-6)
        assert answer.payment == pytest.approx(offer.payments[i], rel=1e-5, abs=1e-5)
        worth = utility(answer.payment, plan.total, care=model.care[i], hidden=model.hidden, constant=6.0)
        assert worth == pytest.approx(0.0, abs=1e-4)
    assert utilities(model, offer.base, offer.slopes, offer.variances) == pytest.approx(np.zeros(5), abs=1e-9)


def test_edges_of_the_ideal_total() -> None:
    assert ideal_total(0.0, [1.0], [1.0]) == math.inf
    assert ideal_total(1.0, [0.0, 1.0], [1.0, math.inf]) == -math.inf
    assert ideal_total(2.0, [1.0], [1.0]) == pytest.approx(-0.5)
    assert ideal_total(0.5, [1.0, 1.0], [1.0, 1.0]) == pytest.approx(3.0)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="shapes"):
        ideal_total(1.0, [1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="negative"):
        ideal_total(1.0, [-1.0], [1.0])
    with pytest.raises(ValueError, match="variance_low"):
        decide(1.0, 1.0, 0.0, care=[1.0], hidden=[1.0], variance_low=0.0, variance_high=1.0)
