"""`what-if similarity`: how much users' data have in common, from public records, with its interval. [CAPP] section II

The answer's `alike` can be used directly in a survey's `pricing` parameters. Never give private answers: the estimate
becomes part of the task's parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from services.kit.runtime import whatif
from services.pricing.domain.similarity import InvalidRecords, estimate


class Input(whatif.Input):
    """Records by device id, all of the same moments; the question's range; groups, each with its own w."""

    records: dict[str, list[float]] = Field(max_length=2000)
    low: float
    high: float
    groups: list[list[str]] = Field(default_factory=list, max_length=1000, description="None = all in one.")


def solve(question: Input) -> dict[str, Any]:
    """Return w of every group with its 95 % interval."""
    groups = question.groups or [list(question.records)]
    _check(question, groups)
    result = [
        estimate(np.array([question.records[device] for device in group]).T, question.high - question.low)
        for group in groups
    ]
    return {
        "alike": [
            {"devices": group, "correlation": entry.correlation} for group, entry in zip(groups, result, strict=True)
        ],
        "intervals": [[item.low, item.high] for item in result],
        "records": result[0].records,
    }


def _check(question: Input, groups: list[list[str]]) -> None:
    named = [device for group in groups for device in group]
    missing = sorted(set(named) - question.records.keys())
    if missing:
        raise InvalidRecords(f"groups name {', '.join(missing)[:200]}, which have no records; add them")
    if len(set(named)) != len(named):
        raise InvalidRecords("a device is in two groups, or twice in one; put each device in one group")
    if len({len(values) for values in question.records.values()}) > 1:
        raise InvalidRecords("devices have different numbers of records; give records of the same moments for all")
