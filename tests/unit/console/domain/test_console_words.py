"""Formatting of numbers and times."""

from __future__ import annotations

import math
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.console.domain import words


@pytest.mark.parametrize(
    ("micro", "expected"),
    [(0, "0"), (1, "0.000001"), (1_250_000, "1.25"), (-3_000_000, "−3"), (1_234_567_000_000, "1,234,567")],
)
def test_credits_lose_only_trailing_zeros(micro: int, expected: str) -> None:
    assert words.credits(micro) == expected


@given(st.integers(-(10**15), 10**15))
def test_credits_can_be_read_back(micro: int) -> None:
    expected = words.credits(micro).replace(",", "").replace("−", "-")
    whole, _, part = expected.lstrip("-").partition(".")
    assert (int(whole) * 10**6 + int(f"{part:0<6}")) * (-1 if expected.startswith("-") else 1) == micro


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        ("inf", "∞"),
        ("nan", "–"),
        (0.0, "0"),
        (0.91357, "0.9136"),
        (-12.5, "−12.5"),
        (12_842.3, "12,842"),
        (1e-6, "1e−6"),
        (2.5e9, "2.5e9"),
    ],
)
def test_figures_are_short(value: float | str | None, expected: str) -> None:
    assert words.number(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0123, "12 ms"), (1, "1 s"), (200, "3 min 20 s"), (86_400 * 2 + 3600 * 4 + 5, "2 days 4 h"), (86_400, "1 day")],
)
def test_spans_have_two_units_at_most(seconds: float, expected: str) -> None:
    assert words.span(seconds) == expected


def test_how_long_ago() -> None:
    assert words.ago(0, 100) == "never"
    assert words.ago(98, 100) == "just now"
    assert words.ago(1_000, 1_000 + 3 * 86_400) == "3 days ago"
    assert words.ago(1_000, 1_000 + 7_300) == "2 h ago"
    assert words.ago(1_090, 1_000) == "in 1 min 30 s"


def test_a_moment_is_in_the_readers_zone() -> None:
    assert words.moment(0) == "–"
    assert words.moment(1_767_225_600) == "2026-01-01 00:00:00"
    assert words.moment(1_767_225_600, ZoneInfo("Asia/Tokyo")) == "2026-01-01 09:00:00"


def test_an_epsilon_without_noise_promises_nothing() -> None:
    assert words.epsilon("inf") == "∞ (no noise)"
    assert words.strength("inf").startswith("no guarantee")
    assert words.strength(0.5).startswith("strong")
    assert words.strength(math.inf) == words.strength("inf")


def test_sizes() -> None:
    assert [words.size(item) for item in (0, 80, 2736, 5 << 20, 3 << 30)] == [
        "0 bytes",
        "80 bytes",
        "2.7 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
