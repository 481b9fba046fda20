"""The grid of a secure sum: bits of a word and after the point, noise of each device, range of the sum.

With noise, B = clip_norm·2^scale steps bound one device's vector, each device adds discrete Gaussian noise of deviation
share = √(((zB)² + 16)/h), and the scale is the largest at which a sum overflows with probability 2^-40 at most: an
element of n shares stays within λ√n·share, λ = √(2 ln(2^41·d)), for all d elements at once.

Without noise the numbers are those of the platform's clear sums, so the unmasked sum equals the clear sum to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.discrete import MOST_SIGMA, Integers
from coterie.privacy.grid import KERNEL_VARIANCE, squared_norm

LEAST_SHARE = 64.0
_STEPS_PER_ROOT = 500.0
_LEAST_ELEMENTS = 100
"""Least number of 32-bit words: the norm reveals random words only in vectors of some length."""
_SLACK = 1e-9
MOST_MAGNITUDE = 4096.0
"""Largest |value| an update of the heaviest weight may hold in a clear sum."""
_SUM_BITS, _TERM_BITS = 62, 51


class NoGrid(ValueError):
    """No grid serves these numbers."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid for sums with noise.

    Attributes:
        bits: of a word, 32 or 64.
        scale: bits after the point.
        bound: B, the L2 norm of one device's vector in steps.
        share: deviation of one device's noise in steps.
        elements: d.
    """

    bits: int
    scale: int
    bound: float
    share: float
    elements: int

    @property
    def tail(self) -> float:
        """λ: standard deviations that any element of a sum exceeds with probability 2^-40."""
        return math.sqrt(2.0 * (41.0 * math.log(2.0) + math.log(self.elements)))

    def largest_value(self, survivors: int) -> float:
        """The largest |X_j| of an honest sum of this many survivors."""
        return survivors * self.bound + self.tail * math.sqrt(survivors) * self.share

    def largest_norm(self, survivors: int) -> float:
        """The largest ‖X‖₂ of an honest sum of this many survivors."""
        spread = math.sqrt(survivors) * self.share * (math.sqrt(self.elements) + self.tail)
        return survivors * self.bound + spread

    def faults(self, devices: int, *, slack: float = _SLACK) -> str | None:
        """Explain why this grid does not fit sums of up to `devices` devices; None if it fits."""
        if self.largest_value(devices) > (2.0 ** (self.bits - 1) - 1) * (1.0 + slack):
            return "the sum could wrap round"
        if self.share > MOST_SIGMA * (1.0 + slack):
            return "the noise is too wide for the sampler"
        if self.bound > 2.0**40 * (1.0 + slack):
            return "the scale is too fine"
        if self.bound < _STEPS_PER_ROOT * math.sqrt(self.elements) * (1.0 - slack):
            return "the scale is too coarse for the vector"
        if self.share < LEAST_SHARE * (1.0 - slack):
            return "the scale is too coarse for the noise"
        if self.bits == 32 and self.elements < _LEAST_ELEMENTS:
            return "short vectors need words of 64 bits"
        return None


def grid_at(bits: int, scale: int, elements: int, clip_norm: float, multiplier: float, honest: int) -> Grid:
    """Make the grid of this scale; `multiplier` is z of the sum, `honest` is h."""
    bound = math.ldexp(clip_norm, scale)
    share = math.sqrt(((multiplier * bound) ** 2 + KERNEL_VARIANCE) / honest)
    return Grid(bits, scale, bound, share, elements)


def choose_grid(devices: int, elements: int, clip_norm: float, multiplier: float, honest: int) -> Grid:
    """Choose the narrowest words that fit, and their finest scale; `NoGrid` if none fit."""
    if not (0 < clip_norm < math.inf and 0 < multiplier < math.inf and honest >= 1 and devices >= 1 and elements >= 1):
        raise NoGrid("a grid needs a finite clip norm and noise multiplier above 0, one element and one honest device")
    finest = math.floor(math.log2(2.0**40 / clip_norm)) if clip_norm > 2.0**-900 else 940
    for bits in (32, 64):
        make = partial(grid_at, bits, elements=elements, clip_norm=clip_norm, multiplier=multiplier, honest=honest)
        grid = _finest(make, finest, devices)
        if grid.faults(devices, slack=0.0) is None:
            return grid
    raise NoGrid(
        f"no grid serves {devices} devices with {elements} elements, a clip norm of {clip_norm:g} and a noise "
        f"multiplier of {multiplier:g}; ask for less noise, fewer devices in a sum, or a smaller model"
    )


def _finest(make: Callable[[int], Grid], finest: int, devices: int) -> Grid:
    """Find the largest scale whose sums fit; B and share double with each step, so the first guess is close."""
    one = make(finest)
    most = 2.0 ** (one.bits - 1) - 1
    room = min(most / one.largest_value(devices), MOST_SIGMA / one.share)
    scale = finest + min(0, math.floor(math.log2(room)) + 2)
    while True:
        grid = make(scale)
        if grid.largest_value(devices) <= most and grid.share <= MOST_SIGMA:
            return grid
        scale -= 1


@dataclass(slots=True)
class Extent:
    """The lowest (≤ 0) and highest (≥ 0) element and the exact squared norm of an unmasked sum, read piece by piece."""

    lowest: int = 0
    highest: int = 0
    squares: int = 0

    @property
    def peak(self) -> int:
        """The largest magnitude."""
        return max(self.highest, -self.lowest)

    @classmethod
    def of(cls, sum: Integers) -> Extent:
        """Measure a whole sum."""
        extent = cls()
        extent.add(sum)
        return extent

    def add(self, piece: Integers) -> None:
        """Add the next piece of the sum."""
        self.lowest = min(self.lowest, int(piece.min(initial=0)))
        self.highest = max(self.highest, int(piece.max(initial=0)))
        self.squares += squared_norm(piece)

    def fault(self, survivors: int, grid: Grid) -> str | None:
        """Explain why a sum of this extent cannot come from honest vectors; None if it can."""
        if self.peak > grid.largest_value(survivors):
            return f"an element of the sum is larger than {survivors} devices can make it"
        if self.squares > Fraction(grid.largest_norm(survivors)) ** 2:
            return f"the sum is longer than {survivors} devices can make it"
        return None

    def clear_fault(self, survivors: int, updates: int) -> str | None:
        """As `fault`, for sums without noise."""
        if self.peak > survivors * (1 << term_bits(updates)):
            return f"an element of the sum is larger than {survivors} devices can make it"
        return None


# --- without noise ----------------------------------------------------------------------------------------------------


def term_bits(updates: int) -> int:
    """Bits per term such that `updates` terms fit 64 bits, as in the platform's clear sums."""
    return min(_TERM_BITS, _SUM_BITS - math.ceil(math.log2(max(updates, 1))))


def clear_scale(updates: int, heaviest: float) -> int:
    """Bits after the point of the platform's clear sums of `updates` updates of weight at most `heaviest`."""
    return term_bits(updates) - math.ceil(math.log2(max(heaviest, 1e-6) * MOST_MAGNITUDE))


def clear_values(change: NDArray[Any], weight: float, scale: int, updates: int) -> Integers:
    """rint(change·(weight·2^scale)), as in the platform's clear sum; `NoGrid` for values beyond the term bits."""
    terms = np.multiply(change.ravel(), weight * 2.0**scale, dtype=np.float64)
    limit = 2.0 ** term_bits(updates)
    if not bool(np.all((terms <= limit) & (terms >= -limit))):  # NaN fails both
        raise NoGrid(
            "the update holds NaN, infinity or a value too large to add up; lower the learning rate or clip it"
        )
    values: Integers = np.rint(terms).astype(np.int64)
    return values
