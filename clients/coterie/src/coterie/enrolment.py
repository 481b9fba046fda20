"""A task that this device has joined: what it was shown then, and what the platform was told."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.records import TaskSpecification
from coterie.sums.joining import Joined


@dataclass(frozen=True, slots=True)
class Told:
    """Samples the platform was told of, and how uneven they are; a round may have opened before it was told last."""

    before: int
    now: int
    non_iid: float

    def spoken_for(self, samples: int) -> int:
        """What an update may weigh of so many samples: no more than the round's opening can have known of."""
        return min(samples, self.before, self.now)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One joined task."""

    specification: TaskSpecification
    joined: Joined
    told: Told
