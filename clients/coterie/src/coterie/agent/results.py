"""The results of an agent's rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from coterie.records import WorkItem


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What became of one round's work: "accepted", "repeated", "late", "declined" or "refused"."""

    task_id: str
    round: int
    outcome: str
    seconds: float
    metrics: dict[str, float]
    note: str = ""


@dataclass(slots=True)
class RunSummary:
    """What an agent did: how each task ended ("interrupted" when the agent was stopped first), and its rounds."""

    tasks: dict[str, str] = field(default_factory=dict)
    rounds: list[RoundResult] = field(default_factory=list)

    @property
    def interrupted(self) -> bool:
        """Whether the agent was stopped before its tasks ended."""
        return "interrupted" in self.tasks.values()

    def __str__(self) -> str:
        done = sum(result.outcome in ("accepted", "repeated") for result in self.rounds)
        states = ", ".join(f"{task} {state}" for task, state in self.tasks.items())
        return f"{done} of {len(self.rounds)} rounds delivered; {states or 'no task'}"


def late(why: object, work: WorkItem, seconds: float) -> str:
    """Why an update came too late, and what to do about a device that is too slow for the round."""
    if time.time() <= work.deadline_at:
        return str(why)
    return (
        f"{why}; this device worked {seconds:.1f} s, longer than the round was open: ask for fewer epochs or more time"
    )
