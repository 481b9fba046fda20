"""Asynchronous rounds: staleness weighs, limits hold, and what makes no sense is refused with its place."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from coterie.records.enums import RoundMode
from services.aggregation.domain.accumulator import Accumulator, choose_scale
from services.aggregation.domain.buffering import UNIT, Buffering, read_mode
from services.aggregation.domain.layout import PREFIX_BYTES, header_length, parse
from services.kit.errors import InvalidInput


def test_a_worked_discount() -> None:
    """(1 + τ)^−½: fresh 1, three versions behind ½, and ⅓ at eight, to the nearest unit."""
    rule = Buffering(2)
    assert [rule.discount(0), rule.discount(3)] == [1.0, 0.5]
    assert rule.discount(8) == round(2**30 / 3) * UNIT
    assert Buffering(2, exponent=0.0).discount(1000) == 1.0


@given(st.floats(0, 10), st.integers(0, 100))
def test_staler_updates_never_weigh_more_and_always_something(exponent: float, staleness: int) -> None:
    rule = Buffering(1, exponent, 200)
    assert rule.discount(0) == 1.0
    assert 0 < rule.discount(staleness + 1) <= rule.discount(staleness)
    assert (rule.discount(staleness) / UNIT).is_integer()


def test_refusal_of_an_update_beyond_the_limit_says_what_to_do() -> None:
    rule = Buffering(1, limit=2)
    assert rule.why_not(2) == ""
    assert "3 versions behind" in rule.why_not(3)
    assert "train from the newest version" in rule.why_not(3)


@given(st.permutations(range(4)), st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(0, 2**32))
def test_a_step_is_the_discounted_sum_over_the_whole_weight_in_any_order(
    order: list[int], stale: list[int], seed: int
) -> None:
    """Σ w·s(τ)·Δ / Σ w, with the same bits whatever the order, and an update taken out again leaves no trace."""
    rng = np.random.default_rng(seed)
    changes = rng.normal(size=(4, 5)).astype(np.float32)
    files = [save({"w": change}) for change in changes]
    rule, weights = Buffering(4, exponent=0.7), [1.0, 2.0, 3.0, 4.0]
    one = files[0]
    layout = parse(one[PREFIX_BYTES : PREFIX_BYTES + header_length(one[:PREFIX_BYTES], len(one))], len(one))

    def step(places: list[int]) -> bytes:
        total = Accumulator(layout, choose_scale(5, 8.0), 5)
        for i in [*places, places[0]]:
            file = files[i]
            total.fold(layout, lambda a, n, file=file: file[a : a + n], weights[i], discount=rule.discount(stale[i]))  # type: ignore[misc]
        first = files[places[0]]
        discount = rule.discount(stale[places[0]])
        total.unfold(layout, lambda a, n: first[a : a + n], weights[places[0]], discount=discount)
        return np.concatenate(list(total.means())).tobytes()

    result = step(order)
    assert result == step([0, 1, 2, 3])
    shares = np.array([weights[i] * rule.discount(stale[i]) for i in range(4)])
    np.testing.assert_allclose(np.frombuffer(result), shares @ changes.astype(np.float64) / 10.0, atol=1e-9)


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"buffer": 0}, "parameters.asynchronous.buffer: must be a whole number at least 1"),
        ({"buffer": 4}, "a buffer of 4 needs min_devices of at least as many, not 3"),
        ({"staleness_exponent": -1}, "parameters.asynchronous.staleness_exponent"),
        ({"staleness_limit": 1.5}, "parameters.asynchronous.staleness_limit"),
        ({"bufer": 2}, "did you mean 'buffer'"),
        ([], "parameters.asynchronous: must be a JSON object"),
    ],
)
def test_senseless_parameters_are_refused_with_their_place(given_: object, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_mode(RoundMode.ASYNCHRONOUS, json.dumps({"asynchronous": given_}), 3)
    assert words in refused.value.message


def test_a_pace_has_defaults_and_a_synchronous_one_takes_nothing() -> None:
    assert read_mode(RoundMode.ASYNCHRONOUS, "{}", 7) == Buffering(7, 0.5, 20)
    assert read_mode(RoundMode.SYNCHRONOUS, "{}", 7) is None
    with pytest.raises(InvalidInput, match="give the task the mode asynchronous"):
        read_mode(RoundMode.SYNCHRONOUS, '{"asynchronous": {"buffer": 2}}', 7)
    with pytest.raises(InvalidInput, match="choose one of: synchronous, asynchronous"):
        read_mode(RoundMode("brisk"), "{}", 7)
