"""The device's side of a mesh round: noise scales, mixing with absent neighbours, gradients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.learning.mixing import (
    MeshState,
    Vector,
    clip_samples,
    clipped_scale,
    mix,
    noise_scale,
    paper_scale,
    project,
    softmax_gradient,
    step,
    step_size,
)


def test_the_scales_are_those_of_the_formulas() -> None:
    """σ = 2·0.01·(1+3)/2 = 0.04; Δ/ε = 2·0.01·5/(50·0.5) = 0.004."""
    assert paper_scale(0.01, np.array([1.0, -3.0]), 2.0) == pytest.approx(0.04)
    assert clipped_scale(0.01, 5.0, 50, 0.5) == pytest.approx(0.004)
    assert step_size(0) == 0.01
    assert step_size(2) == pytest.approx(0.01 * 0.9801)


def test_the_first_round_has_nothing_to_hide() -> None:
    state = MeshState.start([1.0, 2.0])
    for scale in (noise_scale(state, 0.01, 1.0, sensitivity="paper"), noise_scale(state, 0.01, 1.0, clip=3.0)):
        assert scale == 0.0


def test_a_missing_neighbour_s_weight_returns_to_the_device() -> None:
    own, other = np.array([0.0, 4.0]), np.array([8.0, 0.0])
    assert mix(own, {1: other}, {1: 0.25, 2: 0.25}).tolist() == [2.0, 3.0]
    assert mix(own, {}, {1: 0.25}).tolist() == own.tolist()


def test_the_step_mixes_noised_copies_and_descends() -> None:
    """x = 0.5·y_own + 0.5·y_other − 0.1·g."""
    state = MeshState.start([1.0, 1.0])
    after = step(state, np.array([2.0, 0.0]), {3: np.array([4.0, 2.0])}, {3: 0.5}, np.array([10.0, 0.0]), 7, 0.1)
    assert after.parameters.tolist() == [2.0, 1.0]
    assert (after.step_size, after.batch_size, after.gradient.tolist()) == (0.1, 7, [10.0, 0.0])


def test_projection_lands_on_the_ball() -> None:
    assert project(np.array([3.0, 4.0]), 1.0).tolist() == pytest.approx([0.6, 0.8])
    assert project(np.array([0.3, 0.4]), 1.0).tolist() == [0.3, 0.4]


@given(st.integers(0, 2**32), st.integers(1, 20), st.floats(0.01, 20))
@settings(max_examples=50, deadline=None)
def test_replacing_a_sample_moves_the_clipped_step_within_sensitivity(seed: int, batch: int, clip: float) -> None:
    """‖Δx‖₁ ≤ 2ηC/B, the bound the Laplace scale is made of."""
    rng = np.random.default_rng(seed)
    samples, labels = rng.normal(size=(batch, 6)), rng.integers(0, 3, batch)
    parameters = rng.normal(size=18)
    before = softmax_gradient(parameters, samples, labels, 3, clip=clip)
    samples[0], labels[0] = rng.normal(size=6) * 100, (labels[0] + 1) % 3
    after = softmax_gradient(parameters, samples, labels, 3, clip=clip)
    eta, epsilon = 0.1, 0.7
    assert eta * np.abs(before - after).sum() <= clipped_scale(eta, clip, batch, epsilon) * epsilon * (1 + 1e-9)


def test_the_gradient_matches_finite_differences_and_explicit_clipping() -> None:
    rng = np.random.default_rng(4)
    samples, labels, w = rng.normal(size=(5, 4)), rng.integers(0, 3, 5), rng.normal(size=12)

    def loss(point: Vector) -> float:
        scores = samples @ point.reshape(3, 4).T
        return float((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(5), labels]).mean())

    numeric = [(loss(w + 1e-6 * unit) - loss(w - 1e-6 * unit)) / 2e-6 for unit in np.eye(12)]
    assert softmax_gradient(w, samples, labels, 3) == pytest.approx(numeric, abs=1e-6)
    rows = np.array([softmax_gradient(w, samples[k : k + 1], labels[k : k + 1], 3) for k in range(5)])
    assert softmax_gradient(w, samples, labels, 3) == pytest.approx(rows.mean(axis=0))
    assert softmax_gradient(w, samples, labels, 3, clip=0.8) == pytest.approx(clip_samples(rows, 0.8).mean(axis=0))


def test_wrong_input_is_refused_with_the_value() -> None:
    state = MeshState.start([1.0])
    with pytest.raises(ValueError, match="not neighbours"):
        mix(np.ones(1), {9: np.ones(1)}, {1: 0.5})
    with pytest.raises(ValueError, match="sum to at most 1"):
        mix(np.ones(1), {}, {1: 0.7, 2: 0.7})
    with pytest.raises(ValueError, match="neighbour 1 sent"):
        mix(np.ones(1), {1: np.ones(2)}, {1: 0.5})
    with pytest.raises(ValueError, match="epsilon is 0"):
        paper_scale(0.1, np.ones(1), 0)
    with pytest.raises(ValueError, match="clip is 0"):
        clipped_scale(0.1, 0, 3, 1)
    with pytest.raises(ValueError, match="batch_size is 0"):
        clipped_scale(0.1, 1, 0, 1)
    with pytest.raises(ValueError, match="needs clip"):
        noise_scale(state, 0.1, 1.0)
    with pytest.raises(ValueError, match="gradient"):
        step(state, np.ones(1), {}, {}, np.array([np.nan]), 1, 0.1)
    with pytest.raises(ValueError, match="breaks"):
        step(state, np.ones(1), {}, {}, np.ones(1), 1, 0.1, radius=1.0, provably_private=True)
    with pytest.raises(ValueError, match="radius"):
        project(np.ones(1), 0)
    with pytest.raises(ValueError, match="negative"):
        step_size(-1)
