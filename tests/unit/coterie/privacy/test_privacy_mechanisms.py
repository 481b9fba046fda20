"""Amplification by subsampling: why no task uses it."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.privacy.gaussian import exact_multiplier
from coterie.privacy.lifetime import multiplier_for
from coterie.privacy.renyi import epsilon_of_loss
from tests.unit.coterie.privacy.subsampling import amplify, before_sampling, sampled_gaussian_loss

EPSILONS = st.floats(-6.0, 3.0).map(lambda x: 10.0**x)
RATES = st.floats(1e-6, 0.999)


def test_amplification_by_hand() -> None:
    """[SCFL] eq (10) at ε = ln 3, λ = 1/2: ln(1 + ½·2) = ln 2; δ halves."""
    amplified = amplify(math.log(3.0), 1e-6, 0.5)
    assert amplified.epsilon == pytest.approx(math.log(2.0), rel=1e-15)
    assert amplified.delta == 5e-7


@settings(max_examples=50, deadline=None)
@given(EPSILONS, RATES)
def test_sampling_always_helps(epsilon: float, rate: float) -> None:
    """ε' ≤ ε, equality iff λ = 1."""
    assert amplify(epsilon, 1e-6, rate).epsilon < epsilon
    assert amplify(epsilon, 1e-6, 1.0) == (epsilon, 1e-6)


@settings(max_examples=50, deadline=None)
@given(EPSILONS, RATES, st.floats(1.01, 5.0))
def test_amplified_epsilon_rises_with_epsilon_and_with_the_rate(epsilon: float, rate: float, factor: float) -> None:
    assert amplify(epsilon * factor, 0.0, rate).epsilon > amplify(epsilon, 0.0, rate).epsilon
    assert amplify(epsilon, 0.0, min(1.0, rate * factor)).epsilon > amplify(epsilon, 0.0, rate).epsilon


@settings(max_examples=50, deadline=None)
@given(EPSILONS, RATES)
def test_amplification_can_be_undone(epsilon: float, rate: float) -> None:
    back = before_sampling(*amplify(epsilon, 1e-9, rate), rate)
    assert back.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert back.delta == pytest.approx(1e-9)


@pytest.mark.parametrize(("rate", "by_equation_10", "by_moments"), [(0.5, 51.1, 8.51), (0.1, 64.9, 12.29)])
def test_a_device_that_samples_itself_out_of_a_secure_sum_makes_it_worse(
    rate: float, by_equation_10: float, by_moments: float
) -> None:
    """Noise per unit of signal, z/λ, at ε = 4, δ = 1e-5 over 50 rounds: never below the 7.64 of full participation.

    Of a sum over n devices about λn are left, and noise z. (10) turns a round's (ε, δ) into another, so rounds add up
    plainly; composed by moments, sampling costs least, and still more than it saves. The table of docs/papers/scfl.md.
    """
    epsilon, delta, rounds = 4.0, 1e-5, 50
    one_round = before_sampling(epsilon / rounds, delta / rounds, rate)
    assert exact_multiplier(*one_round) / rate == pytest.approx(by_equation_10, rel=1e-3)
    low, high = 0.5, 10.0
    while high - low > 1e-3:
        middle = (low + high) / 2.0
        enough = epsilon_of_loss(rounds * sampled_gaussian_loss(middle, rate), delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    assert high / rate == pytest.approx(by_moments, rel=2e-3)
    assert multiplier_for(epsilon, delta, rounds) == pytest.approx(7.64, rel=1e-3)
    assert min(by_equation_10, by_moments) > 7.65


def test_a_thousand_does_not_overflow() -> None:
    assert amplify(1000.0, 0.0, 0.1).epsilon == pytest.approx(1000.0 + math.log(0.1))
    assert amplify(math.inf, 0.0, 0.1).epsilon == math.inf


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, math.nan])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"got {rate}"):
        amplify(1.0, 0.0, rate)
