"""What a joint decision of the cells is worth: who ends up served, who violates, and the team's reward. [DPVD]

Symbols: κ weight of data, K tasks, M_b violators of station b, dp_b the noise problem's value on station b's devices.

    R = −scale·κ·K + Σ_b ( −1000 M_b²  if M_b > 0  else  scale·(κ Σ_{i∈a_b} X_i/X_task − dp_b) )

A device picked by several stations joins the one that handles its task with the least best-block delay. Violators of a
station: picked devices that joined elsewhere, whose task it does not handle, or that no block carries within the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from services.kit.errors import InvalidInput
from services.topology.domain.blocks import UNSERVED, allocate_blocks
from services.topology.domain.cell_noise import NoiseWeights, unbounded_noise
from services.topology.domain.radio import Layout

Floats = NDArray[np.float64]
Picks = NDArray[np.bool_]

NO_STATION = -1
"""The station of a device that no station serves."""


class InvalidSchedule(InvalidInput):
    """A decision, a state or a reward that does not fit the layout."""


@dataclass(frozen=True, slots=True)
class Reward:
    """How decisions are valued; the defaults are the specification's.

    data_weight: κ.  scale: units per objective unit.  penalty: "dynamic" (1000 M²) or "fixed" (`fixed_penalty`).
    scope: "bs" adds the stations' parts; "joint" values the whole decision at once: −1000 M² with M all violators,
    else −scale·J, J = κ (K − Σ shares) + the noise problem's value over all served devices together.
    """

    data_weight: float = 1.0
    scale: float = 400.0
    noise: NoiseWeights = field(default_factory=NoiseWeights)
    penalty: Literal["dynamic", "fixed"] = "dynamic"
    fixed_penalty: float = 1.6e4
    scope: Literal["bs", "joint"] = "bs"

    def __post_init__(self) -> None:
        for name in ("data_weight", "scale", "fixed_penalty"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InvalidSchedule(f"{name} is {value}; give a finite number above 0")

    def violation(self, violators: int) -> float:
        """What `violators` > 0 devices cost, as a positive number."""
        return 1000.0 * violators**2 if self.penalty == "dynamic" else self.fixed_penalty


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a decision: station and block per device (`NO_STATION`, `UNSERVED`), violators per station, reward."""

    station: NDArray[np.int64]
    block: NDArray[np.int64]
    violators: NDArray[np.int64]
    reward: float

    @property
    def valid(self) -> bool:
        """Whether no station violates its limits."""
        return not self.violators.any()


@dataclass(frozen=True, slots=True)
class Cells:
    """A layout with its reward, ready to value decisions. Build it with `Cells.of`."""

    layout: Layout
    reward: Reward
    handled: NDArray[np.bool_]
    shares: Floats
    samples: Floats
    limits: Floats

    @classmethod
    def of(cls, layout: Layout, reward: Reward | None = None) -> Cells:
        """Refuses a reward under which a valid decision could be worse than a violation: scale·κ·K ≥ 1000."""
        reward = reward or Reward()
        if reward.scale * reward.data_weight * layout.tasks >= 1000.0:
            raise InvalidSchedule(
                f"scale·κ·K is {reward.scale * reward.data_weight * layout.tasks:g}; keep it below 1000 (lower the "
                "scale), or serving no device costs as much as a violation"
            )
        return cls(layout, reward, layout.handled(), layout.shares(), layout.samples(), layout.limits())

    def join(self, delay: Floats, picks: Picks) -> NDArray[np.int64]:
        """The station each picked device joins: least best-block delay among those that picked and handle it.

        delay: (station, device, block).  picks: (station, device).  A tie goes to the lowest station.
        """
        best = np.where(picks & self.handled, delay.min(axis=2, initial=np.inf), np.inf)
        station = np.argmin(best, axis=0).astype(np.int64)
        candidates = (picks & self.handled).any(axis=0)
        joined: NDArray[np.int64] = np.where(candidates, station, NO_STATION)
        return joined

    def decide(self, delay: Floats, picks: Picks) -> Outcome:
        """Values one joint decision in one state. Exact; O(B · (U + R)³) at worst for the block allocations."""
        self._check(delay, picks)
        joined = self.join(delay, picks)
        station = np.full(len(self.samples), NO_STATION, dtype=np.int64)
        block = np.full(len(self.samples), UNSERVED, dtype=np.int64)
        violators = np.zeros(len(self.limits), dtype=np.int64)
        for b, limit in enumerate(self.limits):
            members = np.flatnonzero(joined == b)
            allocation = allocate_blocks(delay[b, members], float(limit))
            block[members] = allocation.block
            station[members[allocation.block != UNSERVED]] = b
            violators[b] = int(picks[b].sum()) - allocation.served
        return Outcome(station, block, violators, self.value(station, violators))

    def value(self, station: NDArray[np.int64], violators: NDArray[np.int64]) -> float:
        """R of the served devices and the violators, in the reward's scope."""
        reward = self.reward
        nothing = -reward.scale * reward.data_weight * self.layout.tasks
        if reward.scope == "joint":
            if violators.any():
                return -reward.violation(int(violators.sum()))
            return nothing + self._worth(station != NO_STATION)
        parts = (
            -reward.violation(int(violators[b])) if violators[b] else self._worth(station == b)
            for b in range(len(self.limits))
        )
        return nothing + sum(parts)

    def _worth(self, served: NDArray[np.bool_]) -> float:
        """scale·(κ Σ shares − dp) of one set of served devices; 0 for an empty set."""
        if not served.any():
            return 0.0
        noise = unbounded_noise(self.samples[served], self.reward.noise).value
        return self.reward.scale * (self.reward.data_weight * float(self.shares[served].sum()) - noise)

    def _check(self, delay: Floats, picks: Picks) -> None:
        shape = (*self.handled.shape, self.layout.blocks)
        if delay.shape != shape or picks.shape != shape[:2]:
            raise InvalidSchedule(
                f"delays of shape {delay.shape} and picks of shape {picks.shape} do not fit {shape[0]} stations, "
                f"{shape[1]} devices and {shape[2]} blocks"
            )
