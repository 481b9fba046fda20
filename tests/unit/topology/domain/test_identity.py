"""Identities: the device's score and choice, and the fleet's tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.learning import model_choice as device
from services.topology.domain.identity import (
    NO_MODEL,
    InvalidIdentities,
    choose_models,
    clustering_accuracy,
    identify,
)

vectors = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3)


@given(vectors, vectors, st.floats(1e-3, 1e3))
def test_alignment_is_a_cosine_of_descent_with_the_move(gradient: list[float], move: list[float], scale: float) -> None:
    value = device.alignment(gradient, move)
    assert -1.0 <= value <= 1.0
    assert device.alignment([-g for g in gradient], move) == pytest.approx(-value, abs=1e-12)
    assert device.alignment([scale * g for g in gradient], move) == pytest.approx(value, abs=1e-9)


def test_a_model_that_moved_down_my_gradient_agrees_with_me() -> None:
    assert device.alignment([1.0, 0.0], [-2.0, 0.0]) == 1.0
    assert device.alignment([1.0, 0.0], [2.0, 0.0]) == -1.0
    assert device.alignment([1.0, 0.0], [0.0, 5.0]) == 0.0


def test_without_a_move_or_a_gradient_the_alignment_is_zero() -> None:
    assert device.alignment([1.0, 2.0], [0.0, 0.0]) == 0.0
    assert device.alignment([0.0, 0.0], [1.0, 2.0]) == 0.0
    assert device.alignment([], []) == 0.0


def test_extreme_vectors_neither_overflow_nor_vanish() -> None:
    assert device.alignment([1e200, 0.0], [-1e-200, 0.0]) == 1.0


def test_weight_moves_the_choice_from_loss_to_alignment() -> None:
    # Model 0 has the lower loss, model 1 the better direction; they swap at λ: λ·1.5 = (1 − λ)·1, λ = .4.
    loss, similarity = [[1.0, 2.0]], [[-0.5, 1.0]]
    assert choose_models(loss, similarity, 0.39).tolist() == [0]
    assert choose_models(loss, similarity, 0.41).tolist() == [1]
    assert choose_models(loss, similarity, 0.4).tolist() == [0]


def test_ties_go_to_the_lowest_model_even_when_rounding_disagrees() -> None:
    # λ S − (1 − λ) L is .1 for both on paper; in floats the second is larger by one ulp.
    assert 0.5 * 0.3 - 0.5 * 0.1 < 0.5 * 0.4 - 0.5 * 0.2
    assert choose_models([[0.1, 0.2]], [[0.3, 0.4]], 0.5).tolist() == [0]
    assert choose_models([[1.0, 1.0, 1.0]], None, 0.2).tolist() == [0]


@given(
    st.lists(st.lists(st.floats(0, 10), min_size=3, max_size=3), min_size=1, max_size=5),
    st.floats(0.0, 1.0),
    st.integers(0, 2**32 - 1),
)
def test_the_choice_maximises_the_score(loss: list[list[float]], weight: float, seed: int) -> None:
    similarity = np.random.default_rng(seed).uniform(-1, 1, np.shape(loss))
    score = device.scores(loss, similarity, weight)
    chosen = choose_models(loss, similarity, weight)
    assert score[np.arange(len(loss)), chosen] == pytest.approx(score.max(axis=1), abs=1e-10)


def test_relative_loss_makes_the_choice_independent_of_the_losss_unit() -> None:
    loss, similarity = np.array([[1.0, 1.2]]), [[0.0, 0.5]]
    small, large = (choose_models(unit * loss, similarity, 0.5, relative_loss=True).tolist() for unit in (1e-3, 1e3))
    assert small == large == [1]
    assert choose_models(1e3 * loss, similarity, 0.5).tolist() == [0]


def test_one_model_is_everyones_model() -> None:
    assert choose_models([[3.0], [math.inf]], None, 0.2).tolist() == [0, 0]


def test_a_device_without_data_for_any_model_is_named_and_left_out() -> None:
    answer = identify([[math.inf, math.inf], [2.0, math.inf], [3.0, 1.0]], None, 0.2)
    assert answer.model.tolist() == [NO_MODEL, 0, 1]
    assert answer.without_data == (0,)
    assert identify([], None, 0.2).model.size == 0


def test_near_equal_models_lie_less_than_the_margin_below_the_best() -> None:
    assert device.near_equal(np.array([0.5, 0.41, 0.39])).tolist() == [0, 1]
    assert device.near_equal(np.array([0.0, 0.5])).tolist() == [1]
    assert device.near_equal(np.array([-np.inf, -0.5])).tolist() == [1]
    assert device.near_equal(np.array([-np.inf, -np.inf])).tolist() == [0, 1]


def test_a_settled_device_downloads_its_model_and_the_runner_up() -> None:
    assert device.likely_models([], 4) == (0, 1, 2, 3)
    assert device.likely_models([1, 2, 2], 4) == (0, 1, 2, 3)
    assert device.likely_models([3, 1, 2, 2, 2], 4) == (1, 2)
    with pytest.raises(ValueError, match="outside"):
        device.likely_models([4], 4)
    with pytest.raises(ValueError, match="at least one"):
        device.likely_models([], 0)


def test_equal_first_choices_leave_a_device_something_to_compare_with() -> None:
    """Three equal choices once left it with one model for ever. Others are compared in turn until one led clearly."""
    assert device.likely_models([0, 0, 0], 2) == (0, 1)
    assert [device.likely_models([2] * run, 4) for run in (3, 4, 5)] == [(2, 3), (0, 2), (1, 2)]
    clear, close = [0.3, 0.3, 0.3], [0.3, 0.05, 0.3]
    assert device.likely_models([0, 0, 0], 2, margins=clear) == (0,)
    assert device.likely_models([0, 0, 0], 2, margins=close) == (0, 1)
    assert device.likely_models([0, 0, 0, 0], 2, margins=[*clear, math.nan]) == (0,)
    assert device.likely_models([0, 0, 0], 1) == (0,)


def test_no_settlement_is_for_ever() -> None:
    """All models again in every fifth settled round, and when the loss rises, however clearly one led."""
    led = [1.0] * 13
    looked = [run for run in range(3, 14) if len(device.likely_models([1] * run, 3, margins=led[:run])) == 3]
    assert looked == [8, 13]
    fallen, risen = [2.0, 1.0, 0.5, 0.52], [2.0, 1.0, 0.5, 0.6]
    assert device.likely_models([1] * 4, 3, margins=led[:4], losses=fallen) == (1,)
    assert device.likely_models([1] * 4, 3, margins=led[:4], losses=risen) == (0, 1, 2)


@given(st.lists(st.integers(0, 3), max_size=30), st.floats(0, 1))
def test_a_device_always_fetches_the_model_it_chose_last(history: list[int], margin: float) -> None:
    result = device.likely_models(history, 4, margins=[margin] * len(history))
    assert set(history[-1:]) <= set(result)
    assert list(result) == sorted(set(result))


def test_accuracy_ignores_the_numbering_of_models() -> None:
    truth = [0, 0, 1, 1, 2, 2]
    assert clustering_accuracy([2, 2, 0, 0, 1, 1], truth) == 1.0
    assert clustering_accuracy([2, 2, 0, 0, 1, 0], truth) == pytest.approx(5 / 6)
    assert clustering_accuracy([NO_MODEL] * 6, truth) == 0.0
    assert math.isnan(clustering_accuracy([], []))
    with pytest.raises(InvalidIdentities):
        clustering_accuracy([0], truth)


@pytest.mark.parametrize(
    ("loss", "similarity", "weight", "says"),
    [
        ([[1.0]], [[2.0]], 0.5, "cosine"),
        ([[math.nan]], None, 0.5, "NaN"),
        ([[1.0, 2.0]], [[0.0]], 0.5, "match"),
        ([[1.0]], None, 1.5, "weight"),
        ([[1.0]], None, math.nan, "weight"),
        ([[]], None, 0.5, "no model"),
        ([1.0], None, 0.5, "table"),
    ],
)
def test_nonsense_tables_of_scores_are_refused(loss: object, similarity: object, weight: float, says: str) -> None:
    with pytest.raises(InvalidIdentities, match=says):
        choose_models(loss, similarity, weight)  # type: ignore[arg-type]


def test_a_gradient_of_another_shape_or_with_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="compared"):
        device.alignment([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="NaN"):
        device.alignment([math.nan], [1.0])
