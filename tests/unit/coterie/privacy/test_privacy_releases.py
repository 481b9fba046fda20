"""Everything that leaves with noise lies on a grid, has the noise it is charged for, and says what it compares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coterie.privacy.accounting import total
from coterie.privacy.releases import Answer, Arrays, Change, Descent, Laplaced, Queried, Raw, Release, Unproven
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import FreshStream

SIZE = 500
VECTOR = np.linspace(-1.0, 1.0, SIZE) / math.sqrt(SIZE)
CHANGE: Arrays = {"w": VECTOR.astype(np.float32).reshape(20, 25), "b": np.ones(7, np.float32) * 1e-3}


def one_step(noised: Queried) -> Arrays:
    return {"w": noised(VECTOR, 2.0, 1.5)}


RELEASES: list[tuple[Release, float]] = [
    (Change(CHANGE, 1.0, 2.0), 2.0),
    (Change(CHANGE, 1.0, 2.0, "replaced"), 2.0),
    (Answer("value", 0.75, 4.0), 2.0),
    (Descent(2 / 9, one_step), 3.0),
    (Laplaced("x", VECTOR, 0.5, 1.0), 0.5 * math.sqrt(2.0)),
    (Unproven("x", VECTOR, 0.5), 0.5 * math.sqrt(2.0)),
]
PROVEN = [release for release, _ in RELEASES[:-1]]


def flat(tensors: Arrays) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(value).astype(np.float64) for value in tensors.values()])


@pytest.mark.parametrize(("release", "deviation"), RELEASES)
def test_what_leaves_is_a_whole_number_of_steps_with_the_noise_promised(release: Release, deviation: float) -> None:
    """Doubles drawn by a generator would fill every bit: 2^-33 is finer than any grid here and far above their last."""
    draws = [flat(release.tensors(FreshStream())) for _ in range(60)]
    values = np.concatenate(draws)
    assert np.all(values * 2.0**33 % 1.0 == 0.0)
    spread = np.concatenate([draw - np.mean(draws, axis=0) for draw in draws]).std()
    assert spread == pytest.approx(deviation, rel=0.3 if len(values) < 100 else 0.05)


def test_noise_is_drawn_afresh_at_every_call_and_again_only_by_simulation() -> None:
    change = Change(CHANGE, 1.0, 2.0)
    assert not np.array_equal(flat(change.tensors(FreshStream())), flat(change.tensors(FreshStream())))
    assert np.array_equal(flat(change.tensors(SeededStream(3))), flat(change.tensors(SeededStream(3))))


def test_a_numpy_generator_is_no_stream() -> None:
    with pytest.raises(AttributeError):
        Change(CHANGE, 1.0, 2.0).tensors(np.random.default_rng(3))  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(st.floats(0.2, 50.0))
def test_same_noise_costs_four_times_rho_when_contribution_is_replaced(multiplier: float) -> None:
    """‖x − 0‖ ≤ C but ‖x − y‖ ≤ 2C, and ρ = (Δ/C)²/(2z²)."""
    left_out, replaced = (
        Change(CHANGE, 1.0, multiplier, adjacency).charge("t", 1, "update") for adjacency in ("left-out", "replaced")
    )
    assert (left_out.adjacency, replaced.adjacency) == ("left-out", "replaced")
    assert replaced.rho == pytest.approx(4.0 * left_out.rho, rel=1e-12)


def test_what_each_release_costs() -> None:
    charges = [release.charge("t", 1, "update") for release in PROVEN]
    assert [charge.rho for charge in charges[:4]] == [0.125, 0.5, 0.125, 2 / 9]
    assert [charge.unit for charge in charges] == ["device", "device", "device", "example", "example"]
    assert [charge.adjacency for charge in charges] == ["left-out", "replaced", "replaced", "replaced", "replaced"]
    for raw in (Raw(CHANGE), Unproven("x", VECTOR, 0.5)):
        assert total([raw.charge("t", 1, "update")], 1e-5) == math.inf


def test_oversized_updates_are_clipped_and_non_finite_become_pure_noise() -> None:
    """A refusal would tell of the data."""
    large: Arrays = {"w": np.full(SIZE, 100.0)}
    mean = np.mean([flat(Change(large, 1.0, 0.1).tensors(SeededStream(k))) for k in range(200)], axis=0)
    assert np.linalg.norm(mean) == pytest.approx(1.0, abs=0.05)
    broken: Arrays = {"w": np.array([math.nan] * SIZE)}
    assert np.isfinite(flat(Change(broken, 1.0, 0.1).tensors(SeededStream(1)))).all()


def test_sum_of_gradients_gets_little_more_noise_than_its_sensitivity_asks(monkeypatch: Any) -> None:
    """Single precision may move it by more than exact arithmetic would; 1/4096 is allowed for."""
    asked: list[float] = []

    def query(values: Any, sensitivity: float, multiplier: float, stream: Any) -> Any:
        asked.append(sensitivity)
        return values

    monkeypatch.setattr("coterie.privacy.releases.noised_query", query)
    Descent(2 / 9, one_step).tensors(SeededStream(1))
    assert asked == [2.0 * (1 + 1 / 4096)]
