"""Interactions as CSV: a header line, then `a,b,positive,duration,at`; devices by name, durations and times in seconds.

`positive` is one of 1, 0, true, false, yes, no (any case); `at` counts seconds from 1970 UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.trust.readers.lines import Line, lines, open_text

COLUMNS = ("a", "b", "positive", "duration", "at")
_TRUTH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class ReportedInteraction:
    """One interaction of two devices, named as in the file, and its line."""

    line: int
    a: str
    b: str
    positive: bool
    duration_seconds: float
    at: float


def read_interactions(path: Path, *, skip_lines: int = 0) -> Iterator[ReportedInteraction]:
    """Yield every interaction of the file in order, from the line after `skip_lines`."""
    with open_text(path, source="the source of the recording") as stream:
        header = stream.readline().strip().lower()
        if tuple(field.strip() for field in header.split(",")) != COLUMNS:
            raise Line(path.name, 1, ()).bad(f"the header must be {','.join(COLUMNS)}, got {header[:80]!r}")
        stream.seek(0)
        for line in lines(stream, path.name, columns=len(COLUMNS), skip_lines=skip_lines):
            yield _interaction(line)


def _interaction(line: Line) -> ReportedInteraction:
    a, b, truth = line.fields[0], line.fields[1], line.fields[2].lower()
    if not a or not b or a == b:
        raise line.bad(f"an interaction needs two different named devices, got {a!r} and {b!r}")
    if truth not in _TRUTH:
        raise line.bad(f"positive must be one of {', '.join(_TRUTH)}, got {line.fields[2]!r}")
    duration = line.number_at(3, "duration")
    if duration < 0:
        raise line.bad(f"duration must be ≥ 0 seconds, got {duration}")
    return ReportedInteraction(
        line=line.number, a=a, b=b, positive=_TRUTH[truth], duration_seconds=duration, at=line.number_at(4, "at")
    )
