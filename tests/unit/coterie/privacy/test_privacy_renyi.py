"""Rényi losses against dp-accounting and against independent integrals."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from coterie.privacy import renyi
from tests.unit.coterie.privacy.subsampling import sampled_gaussian_loss

WHOLE = [order for order in renyi.ORDERS if order == math.floor(order) and order <= 128]


def their_loss(event: dp_event.DpEvent, orders: list[float]) -> np.ndarray:
    return np.asarray(RdpAccountant(orders).compose(event).rdp)


def our_loss(loss: np.ndarray, orders: list[float]) -> np.ndarray:
    return loss[np.isin(renyi.ORDERS, orders)]


@pytest.mark.parametrize("multiplier", [0.2, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.3, 0.9, 1.0])
def test_sampled_gaussian_loss_agrees_with_dp_accounting(multiplier: float, rate: float) -> None:
    theirs = their_loss(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier)), WHOLE)
    np.testing.assert_allclose(our_loss(sampled_gaussian_loss(multiplier, rate), WHOLE), theirs, rtol=1e-6, atol=1e-13)


@pytest.mark.parametrize(("multiplier", "rate"), [(0.7, 0.2), (1.0, 0.05), (2.0, 0.5)])
def test_sampled_gaussian_loss_of_broken_orders_agrees_with_an_integral(multiplier: float, rate: float) -> None:
    for order in (1.25, 2.75, 8.35):
        index = int(np.argmin(np.abs(renyi.ORDERS - order)))
        alpha = float(renyi.ORDERS[index])

        def integrand(x: float, alpha: float = alpha) -> float:
            density = math.exp(-0.5 * (x / multiplier) ** 2) / multiplier / math.sqrt(2.0 * math.pi)
            likelihood: float = 1.0 - rate + rate * math.exp((2.0 * x - 1.0) / (2.0 * multiplier**2))
            return float(density * likelihood**alpha)

        centre = [0.0, alpha / 2.0, alpha]
        moment, _ = quad(integrand, -10 * multiplier, alpha + 10 * multiplier, points=centre, limit=500, epsabs=0.0)
        expected = math.log(moment) / (alpha - 1.0)
        assert sampled_gaussian_loss(multiplier, rate)[index] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0])
def test_laplace_loss_agrees_with_dp_accounting(epsilon: float) -> None:
    theirs = their_loss(dp_event.LaplaceDpEvent(1.0 / epsilon), WHOLE)
    np.testing.assert_allclose(our_loss(renyi.laplace_loss(epsilon), WHOLE), theirs, rtol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3.0, 1.5).map(lambda x: 10.0**x))
def test_losses_rise_with_the_order_and_never_exceed_a_pure_epsilon(epsilon: float) -> None:
    """Rényi divergence is non-decreasing in α and tends to ε; Laplace is never worse than the worst ε-private pair.

    That pair is randomised response: two outcomes of likelihood ratio e^{±ε} (Kairouz, Oh, Viswanath 2015).
    """
    loss, orders = renyi.laplace_loss(epsilon), renyi.ORDERS
    assert bool(np.all(np.diff(loss) >= -1e-9 * epsilon))
    assert float(loss.max()) <= epsilon
    worst = (np.logaddexp(orders * epsilon, (1.0 - orders) * epsilon) - np.logaddexp(0.0, epsilon)) / (orders - 1.0)
    # Near α = 1 both are differences of tiny logarithms.
    assert bool(np.all(loss <= np.clip(worst, 0.0, epsilon) * (1.0 + 1e-9) + 1e-12))


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 5.0])
def test_less_sampling_loses_less_and_full_sampling_loses_all(multiplier: float) -> None:
    losses = [sampled_gaussian_loss(multiplier, rate) for rate in (0.001, 0.1, 0.6, 1.0)]
    for less, more in itertools.pairwise(losses):
        assert bool(np.all(less <= more))
        assert bool(np.any(less < more))
    np.testing.assert_allclose(losses[-1], renyi.gaussian_loss(0.5 / multiplier**2), rtol=1e-14)


def test_conversion_agrees_with_dp_accounting() -> None:
    orders = list(renyi.ORDERS)
    for rho in (1e-4, 0.1, 5.0, 100.0):
        theirs = RdpAccountant(orders).compose(dp_event.ZCDpEvent(rho)).get_epsilon(1e-6)
        assert renyi.epsilon_of_loss(renyi.gaussian_loss(rho), 1e-6) == pytest.approx(theirs, rel=1e-9)


def test_nothing_lost_is_epsilon_zero_and_everything_lost_is_infinite() -> None:
    assert renyi.epsilon_of_loss(renyi.gaussian_loss(0.0), 1e-6) == 0.0
    assert renyi.epsilon_of_loss(renyi.gaussian_loss(math.inf), 1e-6) == math.inf
    assert renyi.epsilon_of_loss(renyi.laplace_loss(math.inf), 1e-6) == math.inf


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="one entry per order"):
        renyi.epsilon_of_loss(np.ones(3), 1e-6)
