"""When a task stops, and which version is the best."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.learning.metrics import better_of
from services.aggregation.domain.stopping import Stop, check
from services.aggregation.errors import BadTask

SERIES = st.dictionaries(st.integers(0, 30), st.floats(0, 1, allow_nan=False), max_size=20)


def test_a_target_is_reached_or_passed() -> None:
    stop = Stop("accuracy", at=0.9)
    assert stop.reason({0: 0.1, 1: 0.89}) == ""
    assert stop.reason({0: 0.1, 1: 0.9}) == "accuracy reached 0.9 in version 1, the target was at least 0.9"
    assert "reached 0.95 in version 2" in stop.reason({0: 0.1, 2: 0.95, 3: 0.97})


def test_the_reason_says_which_way_the_target_was_meant() -> None:
    down = Stop("brier", at=0.5)
    assert down.reason({0: 0.9, 1: 0.4}) == "brier reached 0.4 in version 1, the target was at most 0.5"


def test_a_loss_is_better_below() -> None:
    assert (better_of("loss"), better_of("val_error"), better_of("accuracy"), better_of("f1")) == (
        "down",
        "down",
        "up",
        "up",
    )
    assert Stop("loss", at=0.5).reason({0: 2.0, 1: 0.4}) != ""
    assert Stop("loss", at=0.5).reason({0: 2.0, 1: 0.6}) == ""
    assert Stop("score", at=0.5, better="down").reason({1: 0.4}) != ""


def test_patience_counts_versions_after_the_best() -> None:
    """Best is version 1; versions 2 and 3 are no better, which is patience 2."""
    stop = Stop("accuracy", patience=2)
    assert stop.reason({0: 0.1, 1: 0.8, 2: 0.8}) == ""
    assert stop.reason({0: 0.1, 1: 0.8, 2: 0.8, 3: 0.7}) == (
        "accuracy was not better than 0.8 of version 1 in 2 versions after it"
    )
    assert stop.reason({0: 0.1, 1: 0.8, 2: 0.8, 3: 0.81}) == ""


@given(SERIES, st.sampled_from(["accuracy", "loss"]))
def test_the_best_is_the_first_that_no_other_beats(series: dict[int, float], metric: str) -> None:
    stop = Stop(metric, patience=1)
    best = stop.best(series)
    if best is None:
        assert not series
        return
    assert not any(stop.is_better(value, series[best]) for value in series.values())
    assert all(version >= best for version, value in series.items() if value == series[best])


@pytest.mark.parametrize(
    ("stop", "why"),
    [
        (Stop("", at=1.0), "stop.metric"),
        (Stop("loss"), "a target"),
        (Stop("loss", patience=-1), "a target"),
        (Stop("loss", at=float("nan")), "finite"),
        (Stop("loss", at=1.0, better="sideways"), "up"),
    ],
)
def test_a_stop_without_sense_is_refused(stop: Stop, why: str) -> None:
    with pytest.raises(BadTask, match=why):
        check(stop, measured=True)


def test_a_stop_that_no_device_can_measure_is_refused() -> None:
    check(None, measured=False)
    with pytest.raises(BadTask, match="mesh"):
        check(Stop("loss", at=1.0), measured=False)
