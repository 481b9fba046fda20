"""Metrics of single models, and warnings of the newest closed round."""

from __future__ import annotations

from coterie.records import Event
from coterie.records.enums import EventKind
from services.console.domain.progress import figure_of, warnings_of


def event(kind: EventKind, number: int, message: str = "") -> Event:
    return Event(number=1, task_id="tsk_1", at=1.0, kind=kind, round=number, device_id="", message=message)


def test_a_metric_of_single_models_is_shown_for_each_model() -> None:
    metrics = {"loss": 0.5, "loss[0]": 0.4, "dissimilarity[1]": 2.0, "dissimilarity[0]": 0.25}
    assert figure_of(metrics, "loss") == "0.5"
    assert figure_of(metrics, "dissimilarity") == "0.25 · 2"
    assert figure_of(metrics, "descent") == "–"


def test_only_the_newest_closed_round_shows_warnings() -> None:
    closed, warned = EventKind.ROUND_CLOSED, EventKind.ROUND_WARNED
    first = [event(closed, 1), event(warned, 1, "model 0: far apart"), event(warned, 1, "model 1: too")]
    assert warnings_of(first) == ["model 0: far apart", "model 1: too"]
    assert warnings_of([*first, event(EventKind.ROUND_OPENED, 2)]) == ["model 0: far apart", "model 1: too"]
    assert warnings_of([*first, event(closed, 2)]) == []
    assert warnings_of([]) == []
