"""How fine the numbers of a secure sum are: bits of a word and after the point, noise of each device, range of the sum.

With noise, B = clip_norm·2^scale steps bound one device's vector, each device adds discrete Gaussian noise of deviation
share = √(((zB)² + 16)/h), and the scale is the largest for which no sum wraps round but with chance 2^-40: an element
of n shares stays within λ√n·share, λ = √(2 ln(2^41·d)), for all d elements at once.

Without noise the numbers are those of the platform's clear sums, so that the opened sum is the clear sum to the bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.discrete import MOST_SIGMA, Integers
from coterie.privacy.grid import KERNEL_VARIANCE, squared_norm

LEAST_SHARE = 64.0
_STEPS_PER_ROOT = 500.0
_LEAST_ELEMENTS = 100
"""Of 32-bit words: random words are noticed by their norm, which needs some length."""
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
        """λ: deviations that no element of a sum exceeds, but with chance 2^-40 for all together."""
        return math.sqrt(2.0 * (41.0 * math.log(2.0) + math.log(self.elements)))

    def largest_value(self, survivors: int) -> float:
        """The most |X_j| of an honest sum of so many."""
        return survivors * self.bound + self.tail * math.sqrt(survivors) * self.share

    def largest_norm(self, survivors: int) -> float:
        """The most ‖X‖₂ of an honest sum of so many."""
        spread = math.sqrt(survivors) * self.share * (math.sqrt(self.elements) + self.tail)
        return survivors * self.bound + spread

    def faults(self, devices: int, *, slack: float = _SLACK) -> str | None:
        """What is wrong with this grid for sums of up to so many devices; None if nothing is."""
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
    """The grid of this scale; `multiplier` is z of the sum, `honest` is h."""
    bound = math.ldexp(clip_norm, scale)
    share = math.sqrt(((multiplier * bound) ** 2 + KERNEL_VARIANCE) / honest)
    return Grid(bits, scale, bound, share, elements)


def choose_grid(devices: int, elements: int, clip_norm: float, multiplier: float, honest: int) -> Grid:
    """The narrowest words, and with them the finest scale, that serve; `NoGrid` where none does."""
    if not (0 < clip_norm < math.inf and 0 < multiplier < math.inf and honest >= 1 and devices >= 1 and elements >= 1):
        raise NoGrid("a grid needs a finite clip norm and noise multiplier above 0, and at least one of everything")
    finest = math.floor(math.log2(2.0**40 / clip_norm)) if clip_norm > 2.0**-900 else 940
    for bits in (32, 64):
        grid = _finest(bits, finest, devices, elements, clip_norm, multiplier, honest)
        if grid.faults(devices, slack=0.0) is None:
            return grid
    raise NoGrid(
        f"no grid serves {devices} devices with {elements} elements, a clip norm of {clip_norm:g} and a noise "
        f"multiplier of {multiplier:g}; ask for less noise, fewer devices in a sum, or a smaller model"
    )


def _finest(
    bits: int, finest: int, devices: int, elements: int, clip_norm: float, multiplier: float, honest: int
) -> Grid:
    """The largest scale whose sums fit. B and share double with each step, so a first guess is off by a few."""
    one = grid_at(bits, finest, elements, clip_norm, multiplier, honest)
    room = min((2.0 ** (bits - 1) - 1) / one.largest_value(devices), MOST_SIGMA / one.share)
    scale = finest + min(0, math.floor(math.log2(room)) + 2)
    while True:
        grid = grid_at(bits, scale, elements, clip_norm, multiplier, honest)
        if grid.largest_value(devices) <= 2.0 ** (bits - 1) - 1 and grid.share <= MOST_SIGMA:
            return grid
        scale -= 1


@dataclass(slots=True)
class Extent:
    """How far an opened sum reaches, piece by piece: its lowest element below 0 and highest above, and its squared norm
    in whole numbers."""

    lowest: int = 0
    highest: int = 0
    squares: int = 0

    @property
    def peak(self) -> int:
        """The largest magnitude."""
        return max(self.highest, -self.lowest)

    @classmethod
    def of(cls, sum: Integers) -> Extent:
        """That of a whole sum."""
        extent = cls()
        extent.add(sum)
        return extent

    def add(self, piece: Integers) -> None:
        """Takes the next piece of the sum in."""
        self.lowest = min(self.lowest, int(piece.min(initial=0)))
        self.highest = max(self.highest, int(piece.max(initial=0)))
        self.squares += squared_norm(piece)

    def fault(self, survivors: int, grid: Grid) -> str | None:
        """Why a sum that reaches so far cannot be one of honest vectors; None if it can."""
        if self.peak > grid.largest_value(survivors):
            return "an element of the sum is larger than so many devices can make it"
        if self.squares > Fraction(grid.largest_norm(survivors)) ** 2:
            return "the sum is longer than so many devices can make it"
        return None

    def clear_fault(self, survivors: int, updates: int) -> str | None:
        """As `fault`, for sums without noise."""
        if self.peak > survivors * (1 << term_bits(updates)):
            return "an element of the sum is larger than so many devices can make it"
        return None


def out_of_range(sum: Integers, survivors: int, grid: Grid) -> str | None:
    """Why an opened sum cannot be one of honest vectors; None if it can."""
    return Extent.of(sum).fault(survivors, grid)


# --- without noise ----------------------------------------------------------------------------------------------------


def term_bits(updates: int) -> int:
    """Bits one term may have so that `updates` of them stay within 64: those of the platform's clear sums."""
    return min(_TERM_BITS, _SUM_BITS - math.ceil(math.log2(max(updates, 1))))


def clear_scale(updates: int, heaviest: float) -> int:
    """Bits after the point of the platform's clear sums, for so many updates of weight at most `heaviest`."""
    return term_bits(updates) - math.ceil(math.log2(max(heaviest, 1e-6) * MOST_MAGNITUDE))


def clear_values(change: NDArray[Any], weight: float, scale: int, updates: int) -> Integers:
    """rint(change·(weight·2^scale)), as the platform's clear sum takes it; `NoGrid` for values beyond the term bits."""
    terms = np.multiply(change.ravel(), weight * 2.0**scale, dtype=np.float64)
    limit = 2.0 ** term_bits(updates)
    if not bool(np.all((terms <= limit) & (terms >= -limit))):  # NaN fails both
        raise NoGrid(
            "the update holds NaN, infinity or a value too large to add up; lower the learning rate or clip it"
        )
    values: Integers = np.rint(terms).astype(np.int64)
    return values


def clear_out_of_range(sum: Integers, survivors: int, updates: int) -> str | None:
    """As `out_of_range`, for sums without noise."""
    return Extent.of(sum).clear_fault(survivors, updates)
