"""What to do with an open round, who takes part in one, and who witnessed whom in it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from coterie.records.enums import ParticipationState

WITNESSES = 8
"""Co-participants each device's conduct in a round is recorded with: keeps a round's interactions linear in devices."""


OUT = (ParticipationState.DECLINED, ParticipationState.DROPPED, ParticipationState.REJECTED)
"""States of participants that will not deliver."""
JUDGED = (
    ParticipationState.DELIVERED,
    ParticipationState.REJECTED,
    ParticipationState.DROPPED,
    ParticipationState.LATE,
)
"""States that say something of a participant's conduct, from best to worst."""


_MISSING = {
    ParticipationState.ASSIGNED: "sent nothing",
    ParticipationState.DROPPED: "dropped out",
    ParticipationState.DECLINED: "declined",
    ParticipationState.REJECTED: "refused",
    ParticipationState.ORPHANED: "left behind by their head",
}
"""What is said of participants whose updates are missing."""


class Verdict(Enum):
    """What an open round needs."""

    WAIT = "wait"
    CLOSE = "close"
    REOPEN = "reopen"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an open round stands.

    `pending` participants may still deliver; `unbearable` says why the task's rule cannot combine what came so far.
    `is_full`: the buffer of an asynchronous round is full, even if devices may still deliver.
    """

    delivered: int
    pending: int
    quorum: int
    deadline_at: float
    attempt: int
    max_attempts: int
    unbearable: str = ""
    is_full: bool = False


def judge(standing: Standing, now: float) -> Verdict:
    """Close a full round, or one with its quorum once no device is pending or the deadline passed; else reopen or fail.

    A round whose quorum can no longer be met is not kept open until its deadline. What the task's rule cannot bear
    counts as too few: a robust rule never becomes a mean because devices stayed away.
    """
    if standing.is_full:
        return Verdict.CLOSE
    out_of_reach = standing.delivered + standing.pending < standing.quorum
    if standing.pending and now < standing.deadline_at and not out_of_reach:
        return Verdict.WAIT
    if standing.delivered >= standing.quorum and not standing.unbearable:
        return Verdict.CLOSE
    return Verdict.REOPEN if standing.attempt < standing.max_attempts else Verdict.FAIL


def missing_of(states: Iterable[ParticipationState]) -> str:
    """Describe why updates are missing: the number of devices by state; empty when none is missing."""
    counts = Counter(states)
    parts = [f"{counts[state]} {words}" for state, words in _MISSING.items() if counts[state]]
    return f" ({', '.join(parts)})" if parts else ""


def choose_participants(devices: Sequence[str], most: int, seed: int, round_number: int) -> list[str]:
    """All devices in order of id, or `most` of them drawn with the task's seed: the same draw on every replica."""
    ordered = sorted(devices)
    if not most or len(ordered) <= most:
        return ordered
    return sorted(random.Random(f"{seed}:{round_number}").sample(ordered, most))


def witness_pairs(devices: Sequence[str], seed: int, round_number: int) -> list[tuple[str, str]]:
    """Pairs (a, b), a < b, whose shared round is recorded: each device with up to WITNESSES others, by the seed."""
    shuffled = sorted(devices)
    random.Random(f"witness:{seed}:{round_number}").shuffle(shuffled)
    count = len(shuffled)
    reach = min(WITNESSES // 2, count // 2)
    pairs = {
        (min(a, b), max(a, b))
        for i, a in enumerate(shuffled)
        for step in range(1, reach + 1)
        if (b := shuffled[(i + step) % count]) != a
    }
    return sorted(pairs)


def conduct_of(
    pairs: Sequence[tuple[str, str]], states: Mapping[str, ParticipationState]
) -> list[tuple[str, str, ParticipationState]]:
    """(a, b, the worse one's state) of the pairs of which something can be said.

    Nothing can be said of a device that declined, or that another left behind; and nothing good unless both delivered.
    Of two that both failed neither saw the other fail: an impossible task costs no pair its trust.
    """
    result = []
    for a, b in pairs:
        both = [states[device] for device in (a, b) if states.get(device) in JUDGED]
        if len(both) == 2 and ParticipationState.DELIVERED not in both:
            continue
        worst = max(both, key=JUDGED.index, default=None)
        if worst is not None and not (worst is ParticipationState.DELIVERED and len(both) < 2):
            result.append((a, b, worst))
    return result
