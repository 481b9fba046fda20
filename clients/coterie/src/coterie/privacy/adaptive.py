"""A clip norm that follows the updates: the quantile of their norms, learned from a noised count.

G. Andrew, O. Thakkar, B. McMahan, S. Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (2021). In
round t every device tells, beside its update clipped to C_t, one bit: whether its norm was at most C_t. Of the bits'
mean b, which arrives with noise, the next clip norm follows:

    C_{t+1} = C_t · exp(−η · clamp(b − γ, −1, 1)),

γ the quantile wanted, η the rate. Unlike the paper, b − γ is clamped: whatever devices tell, one round moves the norm
by a factor between e^−η and e^η, and because the clamp is symmetric the norm still rests where a share γ is within it.

**What it costs: nothing beside the update.** Bit and update are one vector of L2 norm at most K, and one release. The
update gets √(1−s²) of the norm and the bit s of it, as ±a with a = ⌊s·B⌋, B = K in steps of the grid: then
‖(update, ±a)‖² ≤ (B² − a²) + a² = B², in whole numbers. A device left out moves the sum by at most B, so noise of
multiplier z over K is charged as z, once. The update is clipped to C = √(1−s²)·K, and the noise on it is z·K: s = 0.3
makes it 4.8 % larger. Telling ±a instead of a or 0 halves what the bit moves by.

The noise on b is z/(2s·n) where n devices share the noise of a secure sum (times √(n/h) for those assumed to collude),
and z/(2s·√n) where each hides by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.parameters.privacy import UniformPrivacy
from coterie.privacy.preconditions import check_positive

COUNT_SHARE = 0.3
"""s: the bit's share of the norm."""
WITHIN = "within_clip"
"""Name of the figure: which share of the updates was within the clip norm, with noise."""
DEFAULT_RATE = 0.2
FARTHEST = 1e6
"""The clip norm stays within this factor of the task's own."""
_UPDATE_SHARE = math.sqrt(1.0 - COUNT_SHARE**2)
_TAIL = math.sqrt(2.0 * 41.0 * math.log(2.0))
"""Deviations that noise exceeds with a chance of 2^-40."""


@dataclass(frozen=True, slots=True)
class AdaptiveClip:
    """`parameters.privacy.clip_quantile` and `clip_rate` of a task.

    Attributes:
        quantile: γ, in (0, 1).
        rate: η, in (0, 1].
    """

    quantile: float
    rate: float = DEFAULT_RATE

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> AdaptiveClip | None:
        """From a task's parameters; None where the clip norm stays as it is."""
        privacy = UniformPrivacy.of(parameters)
        return None if privacy.clip_quantile is None else cls(privacy.clip_quantile, privacy.clip_rate or DEFAULT_RATE)

    def next(self, clip_norm: float, within: float, first: float) -> float:
        """C_{t+1} from C_t and the noised share of updates within it; `first` is the task's own clip norm."""
        step = min(1.0, max(-1.0, within - self.quantile))
        moved = check_positive("clip norm", clip_norm) * math.exp(-self.rate * step)
        return min(first * FARTHEST, max(first / FARTHEST, moved))


def adapts(parameters: Mapping[str, Any]) -> bool:
    """Whether a device of a task with these parameters tells if its update was within the clip norm."""
    return UniformPrivacy.of(parameters).clip_quantile is not None


def joint_norm(clip_norm: float) -> float:
    """K: the norm of update and bit together, which the noise is measured by."""
    return clip_norm / _UPDATE_SHARE


def amplitude(joint: float, scale: int) -> int:
    """a: what the bit is told as, in steps of 2^-scale."""
    return math.floor(COUNT_SHARE * math.ldexp(joint, scale))


def share_within(total: float, one: int, devices: int) -> float:
    """The share of devices within the clip norm, from the sum of their bits with noise, in steps."""
    return 0.5 + total / (2.0 * one * devices)


def farthest_share(multiplier: float) -> float:
    """How far from ½ one device's own noised bit lies, but with a chance of 2^-40, as `share_within` tells it."""
    return 0.5 * (1.0 + _TAIL * multiplier / COUNT_SHARE) * 1.01
