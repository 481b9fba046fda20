"""Zero-concentrated privacy: the platform's noise law, its inverse, and both conversions to (ε, δ)."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy import zcdp

RHOS = st.floats(-8.0, 4.0).map(lambda x: 10.0**x)
DELTAS = st.floats(-15.0, -0.1).map(lambda x: 10.0**x)


def test_the_platforms_law_by_hand() -> None:
    """S = 1, D = 100, δ² = 0.0004: ρ = 2/(10⁴ · 4·10⁻⁴) = 0.5."""
    assert zcdp.rho_of_variance(4e-4, 1.0, 100) == pytest.approx(0.5)
    assert zcdp.variance_of_rho(0.5, 1.0, 100) == pytest.approx(4e-4)


def test_the_simple_conversion_by_hand() -> None:
    """ρ = 1/4, δ = e⁻⁴: ε = 1/4 + 2·√(1/4 · 4) = 2.25."""
    assert zcdp.epsilon_of_rho(0.25, math.exp(-4.0)) == pytest.approx(2.25)


@settings(max_examples=50, deadline=None)
@given(RHOS, st.floats(0.01, 100.0), st.integers(1, 10**6))
def test_rho_survives_the_way_through_noise(rho: float, clip_norm: float, samples: int) -> None:
    variance = zcdp.variance_of_rho(rho, clip_norm, samples)
    assert zcdp.rho_of_variance(variance, clip_norm, samples) == pytest.approx(rho)
    assert zcdp.rho_of_multiplier(zcdp.multiplier_of_rho(rho)) == pytest.approx(rho)
    # The law is the Gaussian one at sensitivity 2S/D.
    assert zcdp.multiplier_of_rho(rho) * 2.0 * clip_norm / samples == pytest.approx(math.sqrt(variance))


@settings(max_examples=50, deadline=None)
@given(RHOS, DELTAS)
def test_rho_survives_the_way_through_epsilon(rho: float, delta: float) -> None:
    assert zcdp.rho_of_epsilon(zcdp.epsilon_of_rho(rho, delta), delta) == pytest.approx(rho, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.lists(RHOS, max_size=8), st.lists(RHOS, max_size=8))
def test_composition_adds(first: list[float], second: list[float]) -> None:
    assert zcdp.compose(first + second) == pytest.approx(zcdp.compose(first) + zcdp.compose(second))


def test_extremes_have_names() -> None:
    assert zcdp.variance_of_rho(0.0, 1.0, 5) == math.inf
    assert zcdp.rho_of_variance(0.0, 1.0, 5) == math.inf
    assert zcdp.rho_of_multiplier(0.0) == math.inf
    assert zcdp.multiplier_of_rho(0.0) == math.inf
    assert zcdp.epsilon_of_rho(0.0, 1e-6) == 0.0
    assert zcdp.rho_of_epsilon(math.inf, 1e-6) == math.inf


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ValueError, match="got -1"):
        zcdp.epsilon_of_rho(-1.0, 1e-6)
    with pytest.raises(ValueError, match="at least one sample, got 0"):
        zcdp.rho_of_variance(1.0, 1.0, 0)
    with pytest.raises(ValueError, match="clip norm must be positive"):
        zcdp.variance_of_rho(1.0, 0.0, 3)
