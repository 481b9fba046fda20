"""Meetings counted one by one are those that counting the whole history finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.records.enums import RelationKind
from services.trust.domain.encounters import TASKS_REMEMBERED, Rule, Standing, Tally, kind_of_meeting, rule_of
from services.trust.domain.meetings import Meetings, spaced_encounters
from services.trust.domain.relations import DEFAULT_RULES

MEETING = st.tuples(st.floats(0, 1e5), st.floats(1, 5e3))


@given(st.lists(MEETING, min_size=1, max_size=30), st.sampled_from([0.0, 600.0, 21_600.0]))
def test_in_the_order_of_their_times_they_count_as_in_the_whole_history(
    met: list[tuple[float, float]], interval: float
) -> None:
    rule, tally = Rule(60.0, interval, 3), Tally()
    for start, seconds in sorted(met):
        tally = tally.met(start, seconds, rule)
    long = sorted(item for item in met if item[1] >= 60.0)
    if not long:
        assert tally.times == 0
        return
    starts, stops = np.array([s for s, _ in long]), np.array([s + d for s, d in long])
    same = np.zeros(len(long), dtype=np.int64)
    assert tally.times == int(spaced_encounters(Meetings(same, same + 1, starts, stops), interval).times[0])


@given(st.lists(MEETING, min_size=1, max_size=20))
def test_in_any_other_order_no_more_count(met: list[tuple[float, float]]) -> None:
    rule, tally, ordered = Rule(0.0, 600.0, 3), Tally(), Tally()
    for start, seconds in met:
        tally = tally.met(start, seconds, rule)
    for start, seconds in sorted(met):
        ordered = ordered.met(start, seconds, rule)
    assert tally.times <= ordered.times


def test_task_counts_once_however_its_rounds_and_other_tasks_come_between() -> None:
    tally = Tally()
    for task in ("a", "b", "a", "b", "a", "c"):
        tally = tally.worked(task)
    assert (tally.times, tally.tasks) == (3, ("a", "b", "c"))
    for k in range(50):
        tally = tally.worked(str(k))
    assert len(tally.tasks) == TASKS_REMEMBERED


def test_who_stands_and_who_is_public_decides_what_meetings_lead_to() -> None:
    place, bus, person = Standing(True, True), Standing(False, True), Standing(False, False)
    assert kind_of_meeting(place, person) is RelationKind.CO_LOCATION
    assert kind_of_meeting(person, person) is RelationKind.SOCIAL
    assert kind_of_meeting(person, bus) is RelationKind.SOCIAL_PUBLIC
    for one, other in ((place, place), (place, bus), (bus, bus)):
        assert kind_of_meeting(one, other) is None
    assert rule_of(RelationKind.SOCIAL_PUBLIC, DEFAULT_RULES) == Rule(60.0, 3_600.0, 3)
    assert rule_of(RelationKind.CO_LOCATION, DEFAULT_RULES) == Rule(0.0, 0.0, 14)
