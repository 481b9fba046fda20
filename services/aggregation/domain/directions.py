"""Which way a task's figures get better: as its publisher says, else as most devices that said so have it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from coterie.learning.metrics import ARROWS, better_of
from services.aggregation.domain.stopping import Stop
from services.aggregation.errors import BadTask

MOST_FIGURES, LONGEST_NAME = 32, 64


def text_of(better: Mapping[str, str]) -> str:
    """What a device said, in one form of words; empty for nothing. Raises BadTask for what makes no sense."""
    if len(better) > MOST_FIGURES:
        raise BadTask(f"better names {len(better)} figures; a device has {MOST_FIGURES} at most")
    for name, way in better.items():
        if not 1 <= len(name) <= LONGEST_NAME or way not in ARROWS:
            raise BadTask(
                f'better must say "up" or "down" of names of 1 to 64 characters, not {way!r} of {name[:64]!r}'
            )
    return json.dumps(dict(better), sort_keys=True) if better else ""


def chosen(said: Mapping[str, int], stop: Stop | None) -> dict[str, str]:
    """The way of each figure that was named; of as many voices for both, the one its name has."""
    voices: dict[str, Counter[str]] = {}
    for text, devices in said.items():
        for name, way in json.loads(text).items():
            voices.setdefault(name, Counter())[way] += devices
    result = {name: max(ways, key=lambda way: (ways[way], way == better_of(name))) for name, ways in voices.items()}
    return result if stop is None else {**result, stop.metric: stop.direction}
