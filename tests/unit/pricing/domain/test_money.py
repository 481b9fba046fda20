"""Whole micro-credits: single amounts, and amounts that belong together."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.pricing.domain.money import from_credits, round_together, whole


@pytest.mark.parametrize(
    ("amount", "down", "up"), [(2.0, 2, 2), (2.3, 2, 3), (Fraction(-1, 3), -1, 0), (0.0, 0, 0), (1e-9, 0, 1)]
)
def test_an_amount_is_rounded_down_when_paid_and_up_when_required(amount: float | Fraction, down: int, up: int) -> None:
    assert (whole(amount), whole(amount, up=True)) == (down, up)


def test_credits_become_micro_credits() -> None:
    assert (from_credits(0.0000015), from_credits(0.0000015, up=True)) == (1, 2)


def test_the_rest_goes_to_the_largest_fractions_then_by_name() -> None:
    """7/4 + 5/4 + 5/4 + 2/4 = 19/4: four whole ones; 1 + 1 + 1 + 0 leaves one, for the first."""
    assert round_together([7, 5, 5, 2], 4, ["a", "b", "c", "d"]) == [2, 1, 1, 0]
    assert round_together([5, 5, 5, 5], 4, ["d", "c", "b", "a"]) == [1, 1, 1, 2]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20), st.integers(1, 10**9))
def test_amounts_rounded_together_sum_to_their_sum_rounded_down(numerators: list[int], denominator: int) -> None:
    result = round_together(numerators, denominator, [f"{k:02}" for k in range(len(numerators))])
    assert sum(result) == math.floor(Fraction(sum(numerators), denominator))
    assert all(abs(amount - Fraction(n, denominator)) < 1 for amount, n in zip(result, numerators, strict=True))
