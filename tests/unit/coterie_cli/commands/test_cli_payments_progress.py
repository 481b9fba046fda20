"""The cost of a task's progress, as `coterie payments summary --progress` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from coterie.client import Platform
from coterie.records import Event, Model
from coterie_cli.commands.payments import Gained, progress_of
from tests.answers import made


class FakePlatform:
    """A platform with given versions and events."""

    def __init__(self, accuracies: Sequence[float | None], events: Sequence[Event]) -> None:
        self._models = [made(Model, metrics={} if value is None else {"accuracy": value}) for value in accuracies]
        self._events = events

    def models(self, task_id: str) -> Sequence[Model]:
        return self._models

    def events(self, task_id: str) -> Sequence[Event]:
        return self._events


def progress(accuracies: Sequence[float | None], paid: int, events: Sequence[Event] = ()) -> Gained:
    return progress_of(cast(Platform, FakePlatform(accuracies, events)), "tsk_1", paid)


def test_an_accuracy_point_costs_what_was_paid_over_the_points_gained() -> None:
    """From 10 % to 60 % for 5 credits: 50 points at 0.1 credits each."""
    result = progress([None, 0.1, 0.4, 0.6], 5_000_000)
    assert result.accuracy_points == pytest.approx(50.0)
    assert result.microcredits_per_accuracy_point == pytest.approx(100_000)


@pytest.mark.parametrize("accuracies", [[], [None], [0.5], [0.6, 0.5], [0.5, 0.5]])
def test_without_progress_a_point_has_no_cost(accuracies: list[float | None]) -> None:
    assert progress(accuracies, 5_000_000).microcredits_per_accuracy_point is None


def test_updates_that_were_refused_or_stood_out_are_listed() -> None:
    events = [
        made(Event, kind="round.opened", round=1, message="opened"),
        made(Event, kind="update.rejected", round=1, device_id="dev_1", message="too large"),
        made(Event, kind="update.suspicious", round=2, device_id="dev_2", message="odd"),
    ]
    assert progress([], 0, events).updates == ("round 1, dev_1: too large", "round 2, dev_2: odd")
