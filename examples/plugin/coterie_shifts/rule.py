"""The midrange rule: the middle between the lowest and the highest value of each coordinate, `f` devices trimmed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from coterie_shifts.parameters import MidrangeParameters


@dataclass(frozen=True, slots=True)
class Midrange:
    f: int
    why: str = "outside of the trimmed range in every coordinate"

    def combine(
        self, values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64] | None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        ordered = np.sort(values, axis=0)
        low, high = ordered[self.f], ordered[len(values) - 1 - self.f]
        counts = ((values >= low) & (values <= high)).any(axis=1)
        return (low + high) / 2, counts


def make_midrange(parameters: MidrangeParameters) -> Midrange:
    return Midrange(parameters.f)
