"""Which direction a task's figures get better: the publisher's word, else the majority of devices that name one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from coterie.learning.metrics import ARROWS, better_of
from services.aggregation.domain.stopping import Stop
from services.aggregation.errors import BadTask

MOST_FIGURES, LONGEST_NAME = 32, 64


def text_of(better: Mapping[str, str]) -> str:
    """Return a device's directions as canonical JSON, empty for none. Raises BadTask if one is invalid."""
    if len(better) > MOST_FIGURES:
        raise BadTask(f"better names {len(better)} figures; a device has {MOST_FIGURES} at most")
    for name, direction in better.items():
        if not 1 <= len(name) <= LONGEST_NAME or direction not in ARROWS:
            raise BadTask(
                f'better must say "up" or "down" of names of 1 to 64 characters, not {direction!r} of {name[:64]!r}'
            )
    return json.dumps(dict(better), sort_keys=True) if better else ""


def chosen(votes: Mapping[str, int], stop: Stop | None) -> dict[str, str]:
    """Return each named figure's direction by majority of devices; a tie goes to the direction its name suggests."""
    tallies: dict[str, Counter[str]] = {}
    for text, devices in votes.items():
        for name, direction in json.loads(text).items():
            tallies.setdefault(name, Counter())[direction] += devices
    result = {
        name: max(tally, key=lambda direction: (tally[direction], direction == better_of(name)))
        for name, tally in tallies.items()
    }
    return result if stop is None else {**result, stop.metric: stop.direction}
