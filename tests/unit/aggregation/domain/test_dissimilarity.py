"""Dissimilarity of updates by hand, against what it estimates, and in the messages about it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.aggregation.domain.dissimilarity import Told, descent, dissimilarity, noise_term


def test_two_updates_by_hand() -> None:
    """u = (3, 0), (1, 0), weights 1: U = (2, 0), Σ‖u − U‖²/2 = 1, ζ₂ = 1/4. η(1 − 4ζ₂)… = 0."""
    result = dissimilarity([Told(1.0, 3.0, 0.0), Told(1.0, 1.0, 0.0)], 4.0, 2)
    assert result is not None
    assert result.most == result.without_noise == pytest.approx(0.25)
    assert descent(result.most, 4.0, 0.5, 2) == pytest.approx(0.0)
    assert descent(0.0, 4.0, 0.5, 2) == pytest.approx(0.5 * 4.0 / 1.0)


def test_noise_is_taken_off_by_hand() -> None:
    """Two updates, e = 2, s = 1: A = 2, B = 1. ‖U‖² = 5, Σ‖u‖²/2 = 9: (9−5)/5 = 0.8; (4 − 1)/(5 − 1) = 0.75."""
    result = dissimilarity([Told(1.0, 3.0, 1.0), Told(1.0, 3.0, 1.0)], 5.0, 2)
    assert result is not None
    assert result.most == pytest.approx(0.8)
    assert result.without_noise == pytest.approx(0.75)
    hidden = dissimilarity([Told(1.0, 3.0, 3.0), Told(1.0, 3.0, 3.0)], 5.0, 2)
    assert hidden is not None
    assert hidden.without_noise is None


def test_one_update_or_a_mean_of_zero_tells_nothing() -> None:
    assert dissimilarity([Told(1.0, 3.0, 0.0)], 9.0, 2) is None
    assert dissimilarity([Told(1.0, 1.0, 0.0)] * 2, 0.0, 2) is None


def test_the_noise_term_by_hand() -> None:
    """d = 5, σmax = 0.2, L = 10: 25 · 0.04 / 20 = 0.05."""
    assert noise_term([0.1, 0.2], 5.0, 10.0) == pytest.approx(0.05)


@given(st.integers(2, 8), st.integers(0, 2**32))
def test_equal_updates_are_not_dissimilar_and_scale_does_not_matter(count: int, seed: int) -> None:
    """ζ₂(c·u) = ζ₂(u); of equal updates it is 0."""
    rng = np.random.default_rng(seed)
    updates, weights = rng.normal(size=(count, 5)), rng.uniform(0.5, 2.0, count)
    for factor in (1.0, 7.5):
        scaled = updates * factor
        mean = np.average(scaled, axis=0, weights=weights)
        direct = float(np.average(((scaled - mean) ** 2).sum(axis=1), weights=weights) / (mean @ mean))
        reports = [Told(float(w), float(np.linalg.norm(u)), 0.0) for w, u in zip(weights, scaled, strict=True)]
        result = dissimilarity(reports, float(mean @ mean), 5)
        assert result is not None
        assert result.most == pytest.approx(direct, rel=1e-6, abs=1e-9)
    same = dissimilarity([Told(float(w), 2.0, 0.0) for w in weights], 4.0, 5)
    assert same is not None
    assert same.most == pytest.approx(0.0, abs=1e-12)


def test_in_the_mean_noise_makes_the_estimate_larger_and_is_taken_off() -> None:
    """100 draws of 6 updates in R^200 with s = 0.02 around one direction with dissimilarity 0.04."""
    rng = np.random.default_rng(3)
    clean = np.zeros((6, 200))
    clean[:, 0] = 1.0
    clean[:, 1] = [0.2, -0.2] * 3
    estimates = []
    for _ in range(100):
        noisy = clean + rng.normal(0.0, 0.02, clean.shape)
        mean = noisy.mean(axis=0)
        reports = [Told(1.0, float(np.linalg.norm(u)), 0.02) for u in noisy]
        result = dissimilarity(reports, float(mean @ mean), 200)
        assert result is not None
        assert result.without_noise is not None
        assert result.most > result.without_noise
        estimates.append(result.without_noise)
    assert math.isclose(float(np.mean(estimates)), 0.04, rel_tol=0.05)
