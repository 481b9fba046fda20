"""Counts meetings and common tasks as reports arrive, until two devices are related.

The rules are those of `relations`, applied to one report at a time in constant time: per pair, the state is a count of
sufficiently long and spaced meetings, and when the last counted one ended. Reports in order of time give the count of
`meetings.spaced_encounters`; a report that arrives after its successors counts only when relations are derived again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from coterie.records.enums import RelationKind
from services.trust.domain.relations import RelationRules

TASKS_REMEMBERED = 16
"""Number of common tasks remembered by name: further reports from one of them are not a new task."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The properties of a device that these rules use: whether it is static, and whether its owner is public."""

    stands: bool
    public: bool


@dataclass(frozen=True, slots=True)
class Rule:
    """Least duration of a meeting, least time between two meetings, and how many it takes."""

    seconds: float
    interval_seconds: float
    needed: int


@dataclass(frozen=True, slots=True)
class Tally:
    """The state of a pair: number of counted meetings (or tasks), when the last ended, and the last tasks' ids."""

    times: int = 0
    last_stop: float = -math.inf
    tasks: tuple[str, ...] = ()

    def met(self, start: float, seconds: float, rule: Rule) -> Tally:
        """Return the tally after a meeting, which counts or not."""
        if seconds < rule.seconds or start < self.last_stop + rule.interval_seconds:
            return self
        return Tally(self.times + 1, start + seconds)

    def worked(self, task: str) -> Tally:
        """Return the tally after a report of a common task."""
        if task in self.tasks:
            return self
        return Tally(self.times + 1, tasks=(*self.tasks, task)[-TASKS_REMEMBERED:])


def kind_of_meeting(one: Standing, other: Standing) -> RelationKind | None:
    """The relation that meetings lead to: C-LOR, SOR or SOR2; none between two static devices or two public ones."""
    if one.stands and other.stands:
        return None
    if one.stands or other.stands:
        walker = other if one.stands else one
        return None if walker.public else RelationKind.CO_LOCATION
    if one.public and other.public:
        return None
    return RelationKind.SOCIAL_PUBLIC if one.public or other.public else RelationKind.SOCIAL


def rule_of(kind: RelationKind, rules: RelationRules) -> Rule:
    """Return the thresholds of a kind; of common tasks only their number."""
    match kind:
        case RelationKind.CO_LOCATION:
            return Rule(0.0, 0.0, rules.co_location_meetings + 1)
        case RelationKind.SOCIAL:
            return Rule(rules.social_meeting_seconds, rules.social_interval_seconds, rules.social_meetings)
        case RelationKind.SOCIAL_PUBLIC:
            interval = rules.social_public_interval_seconds
            return Rule(rules.social_public_meeting_seconds, interval, rules.social_public_meetings)
        case _:
            return Rule(0.0, 0.0, rules.co_work_tasks)


BECAUSE = {
    RelationKind.CO_LOCATION: "one was at the other's place {times} times",
    RelationKind.SOCIAL: "they met {times} times, long enough and far enough apart in time",
    RelationKind.SOCIAL_PUBLIC: "a public vehicle and a person met {times} times, long enough and far enough apart",
    RelationKind.CO_WORK: "they took part in {times} common tasks",
}
