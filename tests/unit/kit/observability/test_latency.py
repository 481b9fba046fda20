"""How fast a process answers."""

from __future__ import annotations

from services.kit.observability.latency import LatencyWindow


def test_half_and_95_of_100_calls_took_no_longer() -> None:
    window = LatencyWindow()
    for milliseconds in reversed(range(1, 101)):
        window.add(milliseconds / 1000)
    assert window.summary() == {"calls": 100.0, "p50_seconds": 0.05, "p95_seconds": 0.095}


def test_one_call_is_all_there_is_to_know_and_none_is_nothing() -> None:
    window = LatencyWindow()
    assert window.summary() == {"calls": 0.0, "p50_seconds": 0.0, "p95_seconds": 0.0}
    window.add(0.2)
    assert window.summary() == {"calls": 1.0, "p50_seconds": 0.2, "p95_seconds": 0.2}


def test_calls_of_long_ago_are_forgotten() -> None:
    window = LatencyWindow(size=2)
    for seconds in (9.0, 1.0, 2.0):
        window.add(seconds)
    assert window.summary() == {"calls": 2.0, "p50_seconds": 1.0, "p95_seconds": 2.0}
