"""What is wrong with a batch of reports, item by item."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trust.domain.reports import PLATFORM, Reports, check
from services.trust.errors import ForeignInteractions, InvalidInteractions

NUMBERS = {"a": 1, "b": 2, "c": 3}
NOW = 1_000.0


def reports(size: int) -> Reports:
    return Reports(
        ids=[str(k) for k in range(size)],
        devices_a=["b"] * size,
        devices_b=["a"] * size,
        positive=[True] * size,
        durations_seconds=[1.0] * size,
        at=[NOW] * size,
        reporters=[""] * size,
        kinds=["met"] * size,
        notes=[""] * size,
    )


def indices(text: str) -> set[int]:
    result: set[int] = set()
    for span in text.split(","):
        low, _, high = span.partition("-")
        result |= set(range(int(low), int(high or low) + 1))
    return result


def test_sound_reports_give_the_devices_numbers_low_first() -> None:
    ends = check(reports(2), NUMBERS, PLATFORM, NOW)
    assert ends.low.tolist() == [1, 1]
    assert ends.high.tolist() == [2, 2]


@given(st.sets(st.integers(0, 59), min_size=1))
def test_exactly_the_bad_indices_are_named(bad: set[int]) -> None:
    """Refused whole, with the index of each bad item."""
    batch = replace(reports(60), durations_seconds=[-1.0 if k in bad else 0.0 for k in range(60)])
    with pytest.raises(InvalidInteractions) as caught:
        check(batch, NUMBERS, PLATFORM, NOW)
    assert indices(caught.value.details["indices"]) == bad
    assert caught.value.message.startswith(f"{len(bad)} of 60")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("devices_a", "z", "unknown device"),
        ("devices_a", "a", "with itself"),
        ("durations_seconds", math.nan, "duration_seconds"),
        ("at", NOW + 300.5, "future"),
        ("at", math.inf, "Unix seconds"),
        ("at", -1.0, "Unix seconds"),
        ("ids", "0", "twice"),
        ("ids", "", "id must be"),
        ("kinds", "k" * 51, "kind must be"),
        ("notes", "a\nb", "note must be"),
    ],
)
def test_each_fault_has_its_own_words(field: str, value: object, reason: str) -> None:
    batch = reports(3)
    getattr(batch, field)[2] = value
    with pytest.raises(InvalidInteractions) as caught:
        check(batch, NUMBERS, PLATFORM, NOW)
    assert caught.value.details["indices"] == "2"
    assert reason in caught.value.details["2"]


def test_the_allowed_skew_is_allowed() -> None:
    batch = replace(reports(1), at=[NOW + 300])
    assert len(check(batch, NUMBERS, PLATFORM, NOW).low) == 1


def test_a_device_may_name_only_itself_as_reporter() -> None:
    batch = replace(reports(2), reporters=["a", ""])
    check(batch, NUMBERS, "a", NOW)
    with pytest.raises(ForeignInteractions) as caught:
        check(batch, NUMBERS, "b", NOW)
    assert caught.value.details["indices"] == "0"
    with pytest.raises(ForeignInteractions) as caught:
        check(batch, NUMBERS, "c", NOW)
    assert caught.value.details["indices"] == "0-1"


def test_bad_rows_of_a_file_are_named_by_line() -> None:
    batch = replace(reports(2), durations_seconds=[1.0, -1.0])
    with pytest.raises(InvalidInteractions, match="line 8"):
        check(batch, NUMBERS, PLATFORM, NOW, [5, 8])


def test_an_error_fits_into_trailing_metadata() -> None:
    batch = replace(reports(10_000), durations_seconds=[float(k % 2) - 1 for k in range(10_000)])
    with pytest.raises(InvalidInteractions) as caught:
        check(batch, NUMBERS, PLATFORM, NOW)
    size = len(caught.value.message) + sum(len(k) + len(v) for k, v in caught.value.details.items())
    assert size < 6_000
