"""The noise problem of a cell: the zCDP law, the closed form, the bounded and the weighted solver."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from services.topology.domain.cell_noise import (
    InvalidNoiseProblem,
    NoiseWeights,
    bounded_noise,
    noise_for_budget,
    objective,
    unbounded_noise,
    zcdp_budget,
)

sizes = st.lists(st.floats(1.0, 1e4), min_size=1, max_size=8)
constants = st.builds(
    NoiseWeights, st.floats(0.1, 10.0), st.floats(0.1, 50.0), st.floats(0.1, 50.0), st.floats(1e-6, 1e3)
)


@given(st.floats(1e-6, 1e6), st.floats(1.0, 1e5), st.floats(0.01, 100.0))
def test_the_budget_of_the_noise_for_a_budget_is_that_budget(budget: float, samples: float, clip: float) -> None:
    """Spec 3.5: zcdp(sigma_for_rho(x)) = x."""
    noise = noise_for_budget([budget], [samples], clip)
    assert zcdp_budget(noise, [samples], clip)[0] == pytest.approx(budget, rel=1e-12)


def test_no_noise_costs_infinite_budget_and_no_budget_infinite_noise() -> None:
    assert zcdp_budget([0.0], [10], 1.0)[0] == math.inf
    assert noise_for_budget([0.0], [10], 1.0)[0] == math.inf
    assert noise_for_budget([math.inf], [10], 1.0)[0] == 0.0


@given(sizes, constants)
def test_the_closed_form_is_the_bounded_solver_without_bounds(samples: list[float], weights: NoiseWeights) -> None:
    """Spec 3.5: closed form == bounded solver without bounds. The huge cap forces the general code path."""
    exact = unbounded_noise(samples, weights)
    solved = bounded_noise(samples, weights, high=[1e9] * len(samples))
    assert solved.noise == pytest.approx(exact.noise, rel=1e-9)
    assert solved.value == pytest.approx(exact.value, rel=1e-9)
    assert objective(exact.noise, samples, weights) == pytest.approx(exact.value, rel=1e-9)


@st.composite
def bounded_problems(draw: st.DrawFn) -> tuple[list[float], NoiseWeights, list[float], list[float]]:
    samples = draw(sizes)
    weights = draw(constants)
    middle = float(unbounded_noise(samples, weights).noise[0])
    low = [draw(st.floats(0.0, 2.0)) * middle for _ in samples]
    high = [bound + draw(st.floats(0.01, 2.0)) * middle for bound in low]
    return samples, weights, low, high


@given(bounded_problems(), st.integers(0, 2**32 - 1))
def test_no_perturbation_within_the_bounds_improves(
    problem: tuple[list[float], NoiseWeights, list[float], list[float]], seed: int
) -> None:
    """Spec 3.5: no perturbation within bounds improves; bounded value >= unbounded."""
    samples, weights, low, high = problem
    plan = bounded_noise(samples, weights, low=low, high=high)
    assert (plan.noise >= np.array(low) - 1e-12).all()
    assert (plan.noise <= np.array(high) + 1e-12).all()
    assert plan.value >= unbounded_noise(samples, weights).value * (1 - 1e-12)
    rng = np.random.default_rng(seed)
    for spread in (1e-3, 0.1, 1.0):
        moved = np.clip(plan.noise * np.exp(spread * rng.normal(size=(40, len(low)))), low, high)
        best = min(objective(row, samples, weights) for row in moved)
        assert best >= plan.value * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_a_general_solver_finds_nothing_better(seed: int) -> None:
    """The epigraph form (variances v ≤ t) under SLSQP is an independent route to the same optimum."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    samples = rng.uniform(1, 50, n)
    weights = NoiseWeights(1.0, float(rng.uniform(0.5, 3)), 10.0, float(10 ** rng.uniform(-2, 1)))
    middle = unbounded_noise(samples, weights).noise
    low = middle * rng.uniform(0, 1.2, n)
    high = low + middle * rng.uniform(0.05, 1.0, n)

    def value(x: np.ndarray) -> float:
        return float(weights.loss_weight * x[n] + weights.privacy_weight * np.sum(2 / (samples**2 * x[:n])))

    start = np.append((low**2 + high**2) / 2, (high**2).max())
    bounds = [*zip(np.maximum(low**2, 1e-9), high**2, strict=True), (0, None)]
    solution = minimize(  # type: ignore[call-overload]  # the stubs want SLSQP constraints as their own TypedDict
        value,
        start,
        bounds=bounds,
        constraints=[{"type": "ineq", "fun": lambda x: x[n] - x[:n]}],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert bounded_noise(samples, weights, low=low, high=high).value == pytest.approx(solution.fun, rel=1e-5)


def test_privacy_without_weight_takes_the_least_noise() -> None:
    weights = NoiseWeights(privacy_weight=0.0)
    assert bounded_noise([5.0], weights).value == 0.0
    plan = bounded_noise([5.0, 5.0], weights, low=[0.2, 0.1], high=[1.0, 1.0])
    assert plan.value == pytest.approx(0.05 * 0.04)


def test_device_with_zero_noise_has_infinite_value_and_affects_no_other() -> None:
    plan = bounded_noise([5.0, 5.0], NoiseWeights(), high=[0.0, math.inf])
    assert plan.value == math.inf
    assert plan.noise[0] == 0.0
    assert plan.noise[1] == pytest.approx(unbounded_noise([5.0], NoiseWeights()).noise[0])


def test_serving_no_device_costs_nothing() -> None:
    plan = bounded_noise([], NoiseWeights())
    assert plan.noise.size == plan.budget.size == 0
    assert plan.value == 0.0


def test_more_privacy_weight_means_more_noise() -> None:
    """The paper's summary has it backwards: γ weighs the privacy budget."""
    quiet = unbounded_noise([10, 20], NoiseWeights(privacy_weight=0.01))
    loud = unbounded_noise([10, 20], NoiseWeights(privacy_weight=1.0))
    assert loud.noise[0] > quiet.noise[0]
    assert loud.budget.sum() < quiet.budget.sum()


@pytest.mark.parametrize(
    ("samples", "low", "high", "says"),
    [
        ([0.0], None, None, "samples"),
        ([-1.0], None, None, "samples"),
        ([math.nan], None, None, "samples"),
        ([[1.0]], None, None, "list"),
        ([1.0], [2.0], [1.0], "above high"),
        ([1.0], [1.0, 2.0], None, "low has 2"),
        ([1.0], None, [], "high has 0"),
        ([1.0], [-1.0], None, "0 or more"),
        ([1.0], [math.inf], None, "finite"),
    ],
)
def test_nonsense_is_refused_with_the_value(samples: list[float], low: object, high: object, says: str) -> None:
    with pytest.raises(InvalidNoiseProblem, match=says):
        bounded_noise(samples, NoiseWeights(), low=low, high=high)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["clip", "dimension", "smoothness", "privacy_weight"])
def test_constants_must_be_finite_and_positive(name: str) -> None:
    with pytest.raises(InvalidNoiseProblem, match=name):
        NoiseWeights(**{name: -1.0})
