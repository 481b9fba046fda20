"""Releases on a grid: the bound in whole numbers, and privacy by convolution against what is charged."""

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from coterie.privacy.accounting import gaussian_charge, total
from coterie.privacy.gaussian import exact_delta
from coterie.privacy.grid import (
    KERNEL_VARIANCE,
    laplaced,
    noised,
    noised_query,
    noised_share,
    noised_tensors,
    rounded,
    squared_norm,
)
from coterie.privacy.simulation import SeededStream

Floats = NDArray[np.float64]
VECTORS = json.loads((Path(__file__).parents[3] / "golden/sums/secure-sums-vectors.json").read_text())
ANY = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e30, 1e30))


# --- rounding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["rounding"], ids=lambda v: f"{v['clip_norm']}-{v['change'][0]}")
def test_rounding_as_in_every_vector(vector: dict[str, Any]) -> None:
    change = np.array(vector["change"])
    values = rounded(change, vector["clip_norm"], vector["scale"], vector["weight"])
    assert values.tolist() == vector["values"]


@settings(max_examples=200, deadline=None)
@given(ANY, st.floats(1e-2, 1e3), st.integers(12, 30), st.floats(1e-3, 1.0))
def test_the_norm_never_exceeds_the_bound_in_whole_numbers(
    change: Floats, clip_norm: float, scale: int, weight: float
) -> None:
    """‖value‖₂ ≤ B exactly, and nothing shorter than B − √d/2 − 1 is touched."""
    values = rounded(change, clip_norm, scale, weight)
    bound = clip_norm * 2.0**scale
    assert sum(int(v) ** 2 for v in values) <= Fraction(bound) ** 2
    steps = change * weight * 2.0**scale
    if np.linalg.norm(steps) < bound - math.sqrt(len(change)) / 2 - 1.001:
        assert values.tolist() == np.rint(steps).tolist()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
def test_what_is_not_finite_becomes_zeros_and_not_a_refusal(bad: float) -> None:
    assert rounded(np.array([1.0, bad, 3.0]), 1.0, 20).tolist() == [0, 0, 0]


def test_vectors_whose_squares_overflow_are_clipped_like_others() -> None:
    values = rounded(np.array([1e200, -1e200]), 1.0, 20)
    assert values[0] == -values[1]
    assert values[0] == pytest.approx(2**20 / math.sqrt(2), rel=1e-5)


def test_a_grid_too_coarse_for_the_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="too coarse"):
        rounded(np.zeros(10_000), 1.0, 5)


@settings(max_examples=100, deadline=None)
@given(arrays(np.int64, st.integers(0, 30), elements=st.integers(-(2**62) + 1, 2**62 - 1)))
def test_the_squared_norm_is_exact(values: NDArray[np.int64]) -> None:
    assert squared_norm(values) == sum(int(v) ** 2 for v in values)


def test_the_squared_norm_of_a_long_vector_of_large_numbers_is_exact() -> None:
    values = np.full(3_000_001, 2**61 - 1)
    assert squared_norm(values) == 3_000_001 * (2**61 - 1) ** 2


# --- privacy ----------------------------------------------------------------------------------------------------------


def law(variance: float, reach: int) -> Floats:
    mass = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return np.asarray(mass / mass.sum())


def delta_of_shift(mass: Floats, shift: int, epsilon: float) -> float:
    """δ(ε) of a release whose law moves by `shift` steps, both ways round the same by symmetry."""
    moved = np.zeros(len(mass) + shift)
    moved[shift:] = mass
    still = np.append(mass, np.zeros(shift))
    return float(np.maximum(still - math.exp(epsilon) * moved, 0.0).sum())


@pytest.mark.parametrize("bound", [8, 50, 400])
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 4.0])
def test_delta_by_convolution_is_at_most_the_charged(bound: int, multiplier: float) -> None:
    variance = (multiplier * bound) ** 2 + KERNEL_VARIANCE
    mass = law(variance, math.ceil(12 * math.sqrt(variance)) + bound)
    for epsilon in np.linspace(0.0, 6.0, 40):
        assert delta_of_shift(mass, bound, epsilon) <= exact_delta(multiplier, epsilon) + 1e-15


def test_without_the_sixteen_delta_would_be_sold_short() -> None:
    """At a coarse grid the discrete law of the same variance has a larger δ than the continuous one."""
    bound, multiplier = 8, 0.5
    mass = law((multiplier * bound) ** 2, 200)
    worst = max(
        delta_of_shift(mass, bound, epsilon) / exact_delta(multiplier, epsilon) for epsilon in np.linspace(0, 6, 200)
    )
    assert worst > 1.001


def test_delta_in_two_dimensions_is_at_most_the_charged() -> None:
    """A shift of (3, 4)·10 steps has length 50."""
    multiplier, bound = 1.0, 50
    variance = (multiplier * bound) ** 2 + KERNEL_VARIANCE
    line = law(variance, 500)
    plane = np.outer(line, line)
    moved = np.zeros_like(plane)
    moved[30:, 40:] = plane[:-30, :-40]
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        delta = float(np.maximum(plane - math.exp(epsilon) * moved, 0.0)[30:, 40:].sum())
        assert delta <= exact_delta(multiplier, epsilon) + 1e-13


@pytest.mark.parametrize(("honest", "multiplier", "bound"), [(1, 1.0, 64), (2, 1.0, 100), (5, 2.0, 100), (3, 4.0, 40)])
def test_shares_of_many_devices_together_are_at_most_the_charged(honest: int, multiplier: float, bound: int) -> None:
    """h shares of variance ((zB)² + 16)/h, added by convolution."""
    share = ((multiplier * bound) ** 2 + KERNEL_VARIANCE) / honest
    mass = law(share, math.ceil(12 * math.sqrt(share)))
    whole = mass
    for _ in range(honest - 1):
        whole = np.convolve(whole, mass)
    for epsilon in np.linspace(0.0, 4.0, 20):
        assert delta_of_shift(whole, bound, epsilon) <= exact_delta(multiplier, epsilon) + 1e-13


@pytest.mark.parametrize(("multiplier", "rounds"), [(1.0, 1), (1.0, 10), (2.0, 10), (4.0, 50)])
def test_the_ledger_is_never_below_the_discrete_gaussians_own_curve(multiplier: float, rounds: int) -> None:
    """ε of dp-accounting's privacy loss distribution (its optimistic estimate) ≤ ε of the charges."""
    bound = 40
    sigma = math.sqrt((multiplier * bound) ** 2 + KERNEL_VARIANCE)
    curve = privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma, sensitivity=bound, pessimistic_estimate=False, value_discretization_interval=1e-3
    ).self_compose(rounds)
    charges = [gaussian_charge("task", number, "update", "device", multiplier) for number in range(rounds)]
    assert curve.get_epsilon_for_delta(1e-5) <= total(charges, 1e-5)


# --- releases ---------------------------------------------------------------------------------------------------------


def test_a_release_is_a_multiple_of_a_power_of_two_with_the_noise_promised() -> None:
    values = np.full(20_000, 5.0, dtype=np.float32).reshape(100, 200)
    released = noised(values, clip_norm=3.0, multiplier=2.0, stream=SeededStream(1))
    assert released.shape == values.shape
    assert np.all(np.ldexp(released, 40) == np.rint(np.ldexp(released, 40)))
    assert released.std() == pytest.approx(6.0, rel=0.03)
    assert released.mean() == pytest.approx(3.0 / math.sqrt(20_000), abs=5 * 6.0 / math.sqrt(20_000))
    assert np.all(np.ldexp(released.astype(np.float32).astype(float), 40) % 1 == 0)


def test_the_grid_depends_on_no_data() -> None:
    """The same noise on other data: the difference is that of the rounded data."""
    one = noised(np.zeros(50), 1.0, 1.0, SeededStream(9))
    other = noised(np.linspace(-0.1, 0.1, 50), 1.0, 1.0, SeededStream(9))
    assert np.abs((other - one) - np.linspace(-0.1, 0.1, 50)).max() < 2.0**-14


def test_a_release_that_is_not_finite_is_noise_around_nothing() -> None:
    released = noised(np.array([math.nan, 1.0]), 1.0, 1.0, SeededStream(4))
    np.testing.assert_array_equal(released, noised(np.zeros(2), 1.0, 1.0, SeededStream(4)))


def test_tensors_are_clipped_and_noised_as_one_vector() -> None:
    tensors: dict[str, NDArray[np.floating[Any]]] = {
        "weight": np.ones((3, 4), np.float32),
        "bias": np.ones(5, np.float64),
        "one": np.ones((), np.float32),
    }
    released = noised_tensors(tensors, 1.0, 0.5, SeededStream(2))
    whole = noised(np.ones(18), 1.0, 0.5, SeededStream(2))
    assert {name: (value.shape, value.dtype) for name, value in released.items()} == {
        name: (value.shape, value.dtype) for name, value in tensors.items()
    }
    np.testing.assert_array_equal(released["bias"], whole[12:17])
    np.testing.assert_array_equal(released["weight"].ravel(), whole[:12].astype(np.float32))
    assert noised_tensors({}, 1.0, 1.0, SeededStream(2)) == {}


@pytest.mark.parametrize(
    ("elements", "clip_norm", "multiplier"),
    [(1, 1e-300, 1.0), (1, 1e300, 1.0), (10, 1.0, 1e-6), (1_000, 1.0, 1e4), (3, 7.0, 1e7)],
)
def test_odd_scales_have_a_grid_too(elements: int, clip_norm: float, multiplier: float) -> None:
    released = noised(np.zeros(elements), clip_norm, multiplier, SeededStream(6))
    assert np.all(np.isfinite(released))
    assert 0 < np.abs(released).max() < 10 * clip_norm * multiplier + 1e-2 * clip_norm


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf, 1e9])
def test_releases_without_a_grid_are_refused(multiplier: float) -> None:
    with pytest.raises(ValueError):
        noised(np.zeros(1_000_000), 1.0, multiplier, SeededStream(1))


def test_a_query_keeps_its_size_and_gets_the_noise_promised() -> None:
    released = noised_query(np.full(20_000, 1_000.0), sensitivity=0.5, multiplier=3.0, stream=SeededStream(8))
    assert released.mean() == pytest.approx(1_000.0, abs=5 * 1.5 / math.sqrt(20_000))
    assert released.std() == pytest.approx(1.5, rel=0.03)
    with pytest.raises(ValueError, match="NaN"):
        noised_query(np.array([math.nan]), 1.0, 1.0, SeededStream(8))
    with pytest.raises(ValueError, match="too large"):
        noised_query(np.array([1e30]), 1.0, 1.0, SeededStream(8))


def test_no_end_of_a_surveys_range_shows_in_the_bits_of_its_answer() -> None:
    """With doubles, 40 % of the answers at an end were impossible from the other; on the grid all are possible."""
    low, high = (
        np.array([noised_share(share, 0.25, SeededStream("answers", number)) for number in range(200)])
        for share in (0.0, 1.0)
    )
    assert np.all(np.ldexp(low, 32) % 1 == 0)
    np.testing.assert_array_equal(high - low, np.ones(200))
    assert low.std() == pytest.approx(0.5, rel=0.2)


@pytest.mark.parametrize("variance", [1e-4, 0.25, 100.0, 1e8, 1e20])
def test_answers_with_any_variance_have_the_noise_promised(variance: float) -> None:
    released = np.array([noised_share(0.5, variance, SeededStream("variance", n)) for n in range(400)])
    assert released.std() == pytest.approx(math.sqrt(variance), rel=0.2)


@pytest.mark.parametrize(("share", "variance"), [(1.5, 1.0), (math.nan, 1.0), (0.5, 0.0), (0.5, math.inf)])
def test_answers_beyond_the_range_or_without_noise_are_refused(share: float, variance: float) -> None:
    with pytest.raises(ValueError):
        noised_share(share, variance, SeededStream(1))


def test_laplace_noise_on_a_grid_is_as_private_as_it_says() -> None:
    """A step of one grid point changes any chance by e^(1/t) at most; L1 sensitivity Δ·2^s + d steps makes ε."""
    released = laplaced(np.full(20_000, 2.0), sensitivity=0.1, epsilon=0.5, stream=SeededStream(5))
    assert released.std() == pytest.approx(0.2 * math.sqrt(2), rel=0.03)
    assert released.mean() == pytest.approx(2.0, abs=5 * 0.2 * math.sqrt(2 / 20_000))
    assert np.all(np.ldexp(released, 50) % 1 == 0)
    with pytest.raises(ValueError, match="NaN"):
        laplaced(np.array([math.inf]), 1.0, 1.0, SeededStream(5))
    with pytest.raises(ValueError, match="no grid"):
        laplaced(np.zeros(1_000_000), 1.0, 1e-9, SeededStream(5))
