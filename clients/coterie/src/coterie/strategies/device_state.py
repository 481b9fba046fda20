"""A mesh device's state on disk between rounds: its model, its position in the stream, and its last message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.agent.home import TaskState
from coterie.learning.mixing import MeshState, Vector

STATE, SENT, MEASURED = "mesh", "mesh-sent", "mesh-measured"
NEWS = 0.25
"""Relative change of a measured time from which it is reported."""
METRICS = (
    "loss",
    "accuracy",
    "online_loss",
    "regret",
    "consensus_distance",
    "heard",
    "noise_scale",
    "step_seconds",
    "simulated_transfer_seconds",
)
"""Names of a report's metrics in storage order; NaN stands for one that was not measured."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A device's samples as they arrive: pass after pass over its data, each in a separate order.

    A batch never crosses into the next pass, so no sample is in it twice, which would double one sample's influence.
    The rest of a pass is skipped.

    Attributes:
        seed: of the orders.
        passes: passes begun before this one.
        position: samples of this pass already used.
    """

    seed: int
    passes: int = 0
    position: int = 0

    def take(self, samples: int, batch_size: int) -> tuple[NDArray[np.int64], Stream]:
        """Indices of the next batch, at most all samples, and the stream behind it."""
        size = min(batch_size, samples)
        passes, position = (self.passes, self.position) if self.position + size <= samples else (self.passes + 1, 0)
        order = np.random.default_rng([self.seed, passes]).permutation(samples)
        return order[position : position + size], Stream(self.seed, passes, position + size)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceState:
    """A device's state after its last step.

    Attributes:
        learner: parameters and the last step, as `coterie.learning.mixing` needs them.
        stream: where in its data it is.
        steps: steps taken.
        round: round of the last step; 0 before the first.
        online_loss: sum over rounds of the loss on each batch as it arrived.
        metrics: those of the last round's report, so that a repeat reports the same.
        growth: (step, samples, batch size) at every change from step 0 on; with the seed it gives the samples of every
            step.
    """

    learner: MeshState
    stream: Stream
    steps: int = 0
    round: int = 0
    online_loss: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    growth: tuple[tuple[int, int, int], ...] = ()

    def grown(self, samples: int, batch_size: int) -> tuple[tuple[int, int, int], ...]:
        """`growth` with the step that comes now."""
        if (self.growth and self.growth[-1][1:] == (samples, batch_size)) or (self.steps > 0 and not self.growth):
            return self.growth
        return (*self.growth, (self.steps, samples, batch_size))

    def seen(self) -> list[NDArray[np.int64]]:
        """Return the batch of every step so far."""
        batches, stream, changes = [], Stream(self.stream.seed), {step: size for step, *size in self.growth}
        samples, batch_size = 0, 0
        for step in range(self.steps if self.growth else 0):
            samples, batch_size = changes.get(step, (samples, batch_size))
            batch, stream = stream.take(samples, batch_size)
            batches.append(batch)
        return batches

    def save(self, memory: TaskState) -> None:
        """On disk, whole or not at all, when this returns."""
        figures = [self.learner.step_size, self.online_loss, *(self.metrics.get(name, np.nan) for name in METRICS)]
        counts = [
            self.learner.batch_size,
            self.stream.seed,
            self.stream.passes,
            self.stream.position,
            self.steps,
            self.round,
        ]
        memory.save(
            STATE,
            {
                "parameters": self.learner.parameters,
                "gradient": self.learner.gradient,
                "figures": np.array(figures),
                "counts": np.array(counts, dtype=np.int64),
                "growth": np.array(self.growth, dtype=np.int64).reshape(-1, 3),
            },
        )

    @classmethod
    def load(cls, memory: TaskState) -> DeviceState | None:
        """As saved; None before the first step."""
        result = memory.load(STATE)
        if result is None:
            return None
        step_size, online_loss, *values = (float(value) for value in result["figures"])
        batch_size, seed, passes, position, steps, round = (int(value) for value in result["counts"])
        metrics = {name: value for name, value in zip(METRICS, values, strict=True) if not np.isnan(value)}
        learner = MeshState(result["parameters"], result["gradient"], step_size, batch_size)
        growth = tuple((int(a), int(b), int(c)) for a, b, c in result.get("growth", np.empty((0, 3), np.int64)))
        return cls(learner, Stream(seed, passes, position), steps, round, online_loss, metrics, growth)


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """The message of a round, stored so that noise is drawn once per state.

    Attributes:
        parameters: y as sent, in single precision.
        steps: steps the device had taken.
        scale: Laplace scale of the noise in it; 0 = raw.
    """

    parameters: NDArray[np.float32]
    steps: int
    scale: float

    @property
    def vector(self) -> Vector:
        """y for computing with."""
        return self.parameters.astype(np.float64)

    def save(self, memory: TaskState) -> None:
        """On disk when this returns."""
        about = np.array([float(self.steps), self.scale])
        memory.save(SENT, {"parameters": self.parameters, "about": about})

    @classmethod
    def load(cls, memory: TaskState) -> Outgoing | None:
        """As saved."""
        result = memory.load(SENT)
        return None if result is None else cls(result["parameters"], int(result["about"][0]), float(result["about"][1]))


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds last reported: per sample, and per message by neighbour."""

    per_sample: float = 0.0
    links: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def load(cls, memory: TaskState) -> Measured:
        """As saved; nothing before the first report."""
        result: Mapping[str, Any] = memory.load(MEASURED) or {}
        links = {name: float(value[0]) for name, value in result.items() if name}
        return cls(links.pop("per_sample", 0.0), links)

    def save(self, memory: TaskState) -> None:
        """On disk when this returns."""
        times = {"per_sample": self.per_sample, **self.links}
        memory.save(MEASURED, {name: np.array([value]) for name, value in times.items()})

    def is_news(self, before: float, now: float) -> bool:
        """Whether a time differs enough from the last reported one to change plans."""
        return now > 0 and abs(now - before) > NEWS * before
