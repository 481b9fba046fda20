"""The Gaussian calibration against high-precision arithmetic, dp-accounting and its own inverses."""

import math

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.gaussian import (
    exact_delta,
    exact_epsilon,
    exact_multiplier,
    exact_multipliers,
    paper_multiplier,
)

mpmath = pytest.importorskip("mpmath")

EPSILONS = st.floats(-3.0, 3.0).map(lambda x: 10.0**x)
DELTAS = st.floats(-12.0, -1.0).map(lambda x: 10.0**x)


def delta_in_80_digits(multiplier: float, epsilon: float) -> float:
    with mpmath.workdps(80):
        sigma, eps = mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        return float(
            mpmath.ncdf(1 / (2 * sigma) - eps * sigma) - mpmath.exp(eps) * mpmath.ncdf(-1 / (2 * sigma) - eps * sigma)
        )


@settings(max_examples=50, deadline=None)
@given(EPSILONS, DELTAS)
def test_the_exact_multiplier_gives_the_delta_asked_for(epsilon: float, delta: float) -> None:
    true_delta = delta_in_80_digits(exact_multiplier(epsilon, delta), epsilon)
    assert delta * (1 - 1e-6) <= true_delta <= delta


@settings(max_examples=50, deadline=None)
@given(st.floats(-1.5, 3.5).map(lambda x: 10.0**x), st.floats(0.0, 1000.0))
def test_delta_agrees_with_eighty_digits(multiplier: float, epsilon: float) -> None:
    expected = delta_in_80_digits(multiplier, epsilon)
    assert exact_delta(multiplier, epsilon) == pytest.approx(expected, rel=1e-8, abs=1e-300)


@settings(max_examples=50, deadline=None)
@given(EPSILONS, DELTAS)
def test_epsilon_and_multiplier_are_inverse(epsilon: float, delta: float) -> None:
    assert exact_epsilon(exact_multiplier(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-7)


@settings(max_examples=50, deadline=None)
@given(EPSILONS, st.floats(1.001, 10.0), DELTAS)
def test_more_budget_never_needs_more_noise(epsilon: float, factor: float, delta: float) -> None:
    assert exact_multiplier(epsilon * factor, delta) < exact_multiplier(epsilon, delta)
    assert exact_multiplier(epsilon, min(0.5, delta * factor)) < exact_multiplier(epsilon, delta)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 1.0), st.floats(-12.0, -2.0).map(lambda x: 10.0**x))
def test_the_papers_formula_is_enough_up_to_epsilon_one(epsilon: float, delta: float) -> None:
    assert exact_multiplier(epsilon, delta) <= paper_multiplier(epsilon, delta)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 20.0])
def test_dp_accounting_finds_the_same_noise(epsilon: float) -> None:
    theirs = gaussian_mechanism.get_sigma_gaussian(epsilon, 1e-6)
    assert exact_multiplier(epsilon, 1e-6) == pytest.approx(theirs, rel=1e-8)


def test_the_array_version_agrees_with_the_scalar_one() -> None:
    epsilons = np.geomspace(1e-3, 1e3, 60).reshape(12, 5)
    for delta in (1e-12, 1e-6, 0.3):
        expected = [[exact_multiplier(float(e), delta) for e in row] for row in epsilons]
        np.testing.assert_allclose(exact_multipliers(epsilons, delta), expected, rtol=1e-11)


def test_no_noise_and_infinite_noise_have_names() -> None:
    assert exact_delta(0.0, 5.0) == 1.0
    assert exact_delta(math.inf, 0.0) == 0.0
    assert exact_epsilon(0.0, 1e-6) == math.inf
    assert exact_epsilon(math.inf, 1e-6) == 0.0
    assert exact_multiplier(math.inf, 1e-6) == paper_multiplier(math.inf, 1e-6) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan])
def test_an_impossible_delta_is_refused_with_its_value(delta: float) -> None:
    with pytest.raises(ValueError, match=f"got {delta}"):
        exact_multiplier(1.0, delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_an_impossible_epsilon_is_refused_with_its_value(epsilon: float) -> None:
    with pytest.raises(ValueError, match=f"got {epsilon}"):
        exact_multiplier(epsilon, 1e-6)
    with pytest.raises(ValueError, match="positive and finite"):
        exact_multipliers(np.array([1.0, epsilon]), 1e-6)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.3])
@pytest.mark.parametrize("epsilon", [1e-100, 1e-300, 5e-324])
def test_next_to_no_epsilon_needs_the_noise_of_none_and_no_endless_search(epsilon: float, delta: float) -> None:
    """At ε = 0, δ(σ) = 2Φ(1/2σ) − 1 = erf(1/(2√2 σ))."""
    result = exact_multiplier(epsilon, delta)
    assert math.erf(1.0 / (2.0 * math.sqrt(2.0) * result)) == pytest.approx(delta, rel=1e-6)
    assert exact_multipliers(np.array([epsilon, 1.0]), delta)[0] == pytest.approx(result, rel=1e-6)
