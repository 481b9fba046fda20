"""Rounds in simulated time: all devices wait for the slowest, or the model steps whenever a buffer is full.

Buffer and discounts are the aggregation service's own (`services.aggregation.domain.buffering`), and so is the order of
things: a device whose update is in the buffer begins again with the next version.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie_lab.cohorts import Cohort, changes, parameters_of
from coterie_lab.federations import Federation
from services.aggregation.domain.buffering import Buffering

Floats = NDArray[np.float64]


@dataclass(slots=True)
class Clock:
    """A federation in time.

    Attributes:
        seconds: how long each device takes for one training, download to upload.
        version: how many steps the model has taken.
    """

    federation: Federation
    seconds: Floats
    seed: int
    model: Tensor = field(init=False)
    version: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.model = parameters_of(self.federation.module)

    def synchronous(self, limit: float) -> Iterator[tuple[float, float]]:
        """(time, accuracy) after each round, which takes as long as the slowest device."""
        slowest, all_devices = float(self.seconds.max()), range(len(self.seconds))
        while (self.version + 1) * slowest <= limit:
            yield (self.version + 1) * slowest, self._step(self._trained(all_devices).mean(dim=0))

    def buffered(self, buffering: Buffering, limit: float) -> Iterator[tuple[float, float]]:
        """(time, accuracy) after each step, taken whenever the buffer is full."""
        began = list(range(len(self.seconds)))
        arrivals = [(float(self.seconds[device]), device) for device in began]
        heapq.heapify(arrivals)
        made: dict[int, tuple[int, Tensor]] = {}
        buffer: list[int] = []
        while arrivals[0][0] <= limit:
            now, device = heapq.heappop(arrivals)
            buffer.append(device)
            if len(buffer) < buffering.size:
                continue
            # Who began since the last step began from this model: they are trained together before it moves on.
            made |= {who: (self.version, row) for who, row in zip(began, self._trained(began), strict=True)}
            rows = [buffering.discount(self.version - made[who][0]) * made[who][1] for who in buffer]
            yield now, self._step(torch.stack(rows).sum(dim=0) / len(rows))
            for who in buffer:
                heapq.heappush(arrivals, (now + float(self.seconds[who]), who))
            began, buffer = buffer, []

    def _trained(self, who: Sequence[int]) -> Tensor:
        many, place = self.federation.cohort, list(who)
        few = Cohort(many.inputs, many.targets, many.shares[place], many.counts[place])
        federation, drawn = self.federation, 1_000 * self.seed + self.version
        return torch.cat(
            list(
                changes(
                    federation.module,
                    self.model,
                    cohort=few,
                    lesson=federation.lesson,
                    seed=drawn,
                    kernel=federation.kernel,
                )
            )
        )

    def _step(self, change: Tensor) -> float:
        self.model, self.version = self.model + change, self.version + 1
        return self.federation.score(self.model).accuracy
