"""How far a round believes its devices: how many of their claimed samples count.

Samples are a device's own claim, and an owner may have many devices. So in every round a device counts at most

    10 times the median of all claims,                             which a minority cannot move far, then
    a share of all that counts (a quarter), or an equal share,     and then
    its owner's devices together at most that share, or an equal share among owners.

Claims below these bounds count as they are, to the last bit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.parameters.task import BoundsParameters
from services.kit.rpc.parameters import validate

Vector = npt.NDArray[np.float64]
TIMES_MEDIAN = 10.0
"""Claims of more samples than this often the round's median count as this."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a task's parameters say under "bounds".

    Attributes
    ----------
    largest_share : of a round's weight that one device, or one owner's devices together, may have.
    norm_times : an update longer than this often the median is refused, where the task does not clip.
    """

    largest_share: float = BoundsParameters().largest_share
    norm_times: float = BoundsParameters().norm_times

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Bounds:
        """From a task's parameters; raises `BadParameters`."""
        given = validate(BoundsParameters, parameters)
        return cls(given.largest_share, given.norm_times)

    def counted(self, samples: Mapping[str, int], owners: Mapping[str, str]) -> dict[str, float]:
        """How many of the samples each device claims count in a round of all these."""
        if not samples:
            return {}
        devices = sorted(samples)
        claimed = np.array([samples[device] for device in devices], np.float64)
        claimed = np.minimum(claimed, TIMES_MEDIAN * float(np.median(claimed)))
        claimed = within_share(claimed, self.largest_share)
        names, places = np.unique([owners[device] for device in devices], return_inverse=True)
        together = np.zeros(len(names))
        np.add.at(together, places, claimed)
        allowed = within_share(together, self.largest_share)
        cut = allowed < together
        shrunk = np.divide(allowed, together, out=np.ones_like(together), where=cut)
        return dict(zip(devices, np.where(cut[places], claimed * shrunk[places], claimed).tolist(), strict=True))

    def most_in_buffer(self, size: int, owners: Mapping[str, str], attempt: int = 1) -> int:
        """How many updates of one owner's devices count in an asynchronous step of `size` updates.

        `largest_share` of them, and never fewer than fill the buffer when all devices deliver: one fast owner would
        else make every step alone. A round opened again for lack of others takes as many more with each attempt.
        """
        devices = Counter(owners.values())
        least = next((most for most in range(1, size) if sum(min(n, most) for n in devices.values()) >= size), size)
        return min(size, attempt * max(math.floor(self.largest_share * size), least))


def within_share(values: Vector, share: float) -> Vector:
    """The values, the largest lowered until none is above `share` of their new sum, or above an equal share.

    With the k largest lowered to c, and R the sum of the others, c = s(R + kc), so c = sR/(1 − ks). The first k for
    which the next largest is within c is the least that does.
    """
    count = int(np.count_nonzero(values > 0.0))
    share = max(share, 1.0 / max(count, 1))
    ordered = np.sort(values)[::-1]
    rest = np.concatenate([np.cumsum(ordered[::-1])[::-1], [0.0]])
    if share * rest[0] >= ordered[0] * (1.0 - 1e-12) or share >= 1.0:
        return values
    for lowered in range(1, count):
        # At an equal share of n the last one left is the least: 1 − (n − 1)/n may be rounded to a little less.
        left = 1.0 - lowered * share
        most = share * float(rest[lowered]) / left if left > 0.0 else float(ordered[lowered])
        if ordered[lowered] <= most * (1.0 + 1e-12):
            return np.minimum(values, max(most, float(ordered[count - 1])))
    return np.minimum(values, float(ordered[count - 1]))
