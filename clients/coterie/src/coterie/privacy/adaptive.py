"""A clip norm that follows the updates: the quantile of their norms, learned from a noised count.

G. Andrew, O. Thakkar, B. McMahan, S. Ramaswamy, "Differentially Private Learning with Adaptive Clipping" (2021). In
round t every device sends its update clipped to C_t and one bit: whether its norm was at most C_t. The next clip norm
follows from the noised mean b of the bits:

    C_{t+1} = C_t · exp(−η · clamp(b − γ, −1, 1)),

γ the wanted quantile, η the rate. Unlike the paper, b − γ is clamped: one round moves the norm by a factor between e^−η
and e^η whatever devices send, and because the clamp is symmetric the norm still settles where a share γ is within it.

**The bit costs nothing beyond the update.** Bit and update are one vector of L2 norm at most K, and one release. The
update gets √(1−s²) of the norm and the bit s of it, as ±a with a = ⌊s·B⌋, B = K in steps of the grid: then
‖(update, ±a)‖² ≤ (B² − a²) + a² = B², in whole numbers. A device left out moves the sum by at most B, so noise of
multiplier z over K is charged as z, once. The update is clipped to C = √(1−s²)·K, and the noise on it is z·K: s = 0.3
makes it 4.8 % larger. Sending ±a instead of a or 0 halves the distance that the bit moves.

The noise on b is z/(2s·n) where n devices share the noise of a secure sum (times √(n/h) for those assumed to collude),
and z/(2s·√n) where each device adds its own noise.
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
"""Name of the metric: the noised share of updates within the clip norm."""
DEFAULT_RATE = 0.2
FARTHEST = 1e6
"""The clip norm stays within this factor of the task's own."""
_UPDATE_SHARE = math.sqrt(1.0 - COUNT_SHARE**2)
_TAIL = math.sqrt(2.0 * 41.0 * math.log(2.0))
"""Standard deviations that noise exceeds with probability 2^-40."""


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
        """Read from a task's parameters; None if the clip norm is constant."""
        privacy = UniformPrivacy.of(parameters)
        return None if privacy.clip_quantile is None else cls(privacy.clip_quantile, privacy.clip_rate or DEFAULT_RATE)

    def next(self, clip_norm: float, within: float, first: float) -> float:
        """C_{t+1} from C_t and the noised share of updates within it; `first` is the task's own clip norm."""
        step = min(1.0, max(-1.0, within - self.quantile))
        moved = check_positive("clip norm", clip_norm) * math.exp(-self.rate * step)
        return min(first * FARTHEST, max(first / FARTHEST, moved))


def adapts(parameters: Mapping[str, Any]) -> bool:
    """Whether devices of a task with these parameters report if their update was within the clip norm."""
    return UniformPrivacy.of(parameters).clip_quantile is not None


def joint_norm(clip_norm: float) -> float:
    """K: the norm of update and bit together, to which the noise is scaled."""
    return clip_norm / _UPDATE_SHARE


def amplitude(joint: float, scale: int) -> int:
    """a: the magnitude that encodes the bit, in steps of 2^-scale."""
    return math.floor(COUNT_SHARE * math.ldexp(joint, scale))


def share_within(total: float, one: int, devices: int) -> float:
    """Return the share of devices within the clip norm from the noised sum of their bits, in steps."""
    return 0.5 + total / (2.0 * one * devices)


def farthest_share(multiplier: float) -> float:
    """Return the distance from ½ that `share_within` of one device's noised bit exceeds with probability 2^-40."""
    return 0.5 * (1.0 + _TAIL * multiplier / COUNT_SHARE) * 1.01
