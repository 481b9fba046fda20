"""Exact samplers of whole numbers: the discrete Gaussian and the discrete Laplace law, vectorised.

Floating-point noise leaks what it hides: the low bits of value + noise identify the value. Here noise is a whole number
whose law is known to 2^-100, drawn from a cryptographic stream; no generator of numpy's is involved.

A `Table` holds cuts, floor(2^128·P(Y ≤ v)), computed in 60-digit decimals. A 64-bit word is looked up by the high
halves of the cuts; where it equals one, a further word decides by the low halves, so a draw is as good as one of 128
bits. Laws too wide for a table are put together from digits:

*Gaussian*, N_Z(0, σ²): P(x) ∝ exp(−x²/2σ²). X = Σ_{j<J} a^j·Y_j with all Y_j from N_Z(0, σ0²), σ0² = σ²/Σ_j a^(2j).
Adding a·Y′ to Y gives N_Z(0, σ0² + a²σ′²) but for a factor 1 ± 4e^-100 when σ0² ≥ (100/2π²)(1 + a²) (the lattice is
finer than the smoothing width of the product's law).

*Laplace*, P(x) ∝ exp(−|x|/t), is the difference of two geometric variables of ratio q = e^(−1/t). Digits of a geometric
variable in base a are independent, because q^Σ a^j·y_j is a product: digit j is y ∈ [0, a) with weight q^(a^j·y).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.stream import Stream

Integers = NDArray[np.int64]

LEAST_SIGMA, MOST_SIGMA = 16.0, 2.0**40
MOST_BASE = 512.0
"""Widest Gaussian with a single table."""
_SMOOTH = 100.0 / (2.0 * math.pi**2)
_TAIL = 13.6
"""Standard deviations that a table covers: P(|Y| > 13.6σ) < 2^-137."""
_LAPLACE_RADIX = 1024
_LAPLACE_TAIL = 100
"""Scales that a geometric variable's tables cover: e^-100 < 2^-144."""
_CUT_BITS = 128
_LOW_WORD = (1 << 64) - 1
_GUIDE_BITS = 16
_CHUNK = 1 << 16
"""Draws per chunk; words and guide fit the processor's cache."""


class Table:
    """A law on the whole numbers lowest, lowest + 1, …, by its cuts.

    `cuts[i]` = floor(2^128·P(Y ≤ lowest + i)) for all but the last value. A draw of 128 bits u is the number of cuts ≤
    u.
    """

    def __init__(self, lowest: int, cuts: list[int]) -> None:
        self.lowest, self.cuts = lowest, cuts
        self._high = np.array([cut >> 64 for cut in cuts], dtype=np.uint64)
        # The first 16 bits of a word settle most draws; buckets that hold a cut are marked −1 and searched.
        bucket = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        first = np.searchsorted(self._high, bucket, side="left")
        last = np.searchsorted(self._high, bucket + np.uint64((1 << (64 - _GUIDE_BITS)) - 1), side="right")
        self._guide = np.where(first == last, first, -1).astype(np.int32)

    def draw(self, count: int, stream: Stream) -> Integers:
        """Independent draws."""
        return self.look_up(stream.words(count), lambda: int(stream.words(1)[0]))

    def look_up(self, words: NDArray[np.uint64], further: Callable[[], int]) -> Integers:
        """Return the value of each word; `further` supplies another word where one word does not decide."""
        result: Integers = self._guide[words >> np.uint64(64 - _GUIDE_BITS)].astype(np.int64)
        open_places = np.flatnonzero(result < 0)
        if len(open_places):
            searched = words[open_places]
            first = np.searchsorted(self._high, searched, side="left")
            last = np.searchsorted(self._high, searched, side="right")
            result[open_places] = first
            for tie in np.flatnonzero(first != last):
                low = further()
                result[open_places[tie]] += sum(
                    cut & _LOW_WORD <= low for cut in self.cuts[int(first[tie]) : int(last[tie])]
                )
        result += self.lowest
        return result


# --- the Gaussian law -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """Decomposition of a Gaussian of deviation σ: Σ_{j<digits} radix^j·Y_j, each Y_j of deviation `base`."""

    sigma: float
    radix: int
    digits: int

    @property
    def variance(self) -> Decimal:
        """σ0² = σ²/Σ_j radix^(2j), to 60 digits."""
        with localcontext(_decimals()):
            return Decimal(self.sigma) ** 2 / _squares(self.radix, self.digits)

    @property
    def base(self) -> float:
        """σ0."""
        return self.sigma / math.sqrt(_squares(self.radix, self.digits))


def plan_noise(sigma: float) -> NoisePlan:
    """Choose the fewest digits with a narrow enough table, and the largest radix that keeps every step exact."""
    if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
        raise ValueError(f"the sampler serves deviations from 16 to 2^40 grid steps, got {sigma}; choose another grid")
    digits, radix = 1, 1
    while sigma / math.sqrt(_squares(radix, digits)) > MOST_BASE:
        digits += 1
        radix = _largest_radix(sigma, digits)
    return NoisePlan(sigma, radix, digits)


@lru_cache(maxsize=16)
def gaussian_table(variance: Decimal) -> Table:
    """Make the table of N_Z(0, variance) on |v| ≤ ⌈13.6·√variance⌉; takes up to 30 ms and is cached."""
    with localcontext(_decimals()):
        deviation = float(variance.sqrt())
        highest = math.ceil(_TAIL * deviation)
        weights = _gaussian_weights(variance, math.ceil(1.3 * highest))
        # tails[v] = Σ_{u ≥ v} weight(u), added from the small end.
        tails = list(_running(reversed(weights)))[::-1]
        scale = Decimal(1 << _CUT_BITS) / (tails[0] + tails[1])
        below = [_floor(tails[v] * scale) for v in range(highest, 0, -1)]
        above = [_floor(Decimal(1 << _CUT_BITS) - tails[v + 1] * scale) for v in range(highest)]
        return Table(-highest, below + above)


def keep_tables(count: int) -> None:
    """Cache the tables of `count` deviations, 1 MB each; draws do not change.

    For simulations: many devices with different noise in one process would otherwise recompute their tables each round.
    """
    global gaussian_table
    gaussian_table = lru_cache(maxsize=count)(gaussian_table.__wrapped__)


def discrete_gaussian(count: int, sigma: float, stream: Stream) -> Integers:
    """Draw `count` independent values of N_Z(0, σ²), 16 ≤ σ ≤ 2^40, each within 2^-100 of the law.

    A million draws take 30 to 150 ms, depending on the number of digits.
    """
    plan = plan_noise(sigma)
    table = gaussian_table(plan.variance)
    return _in_chunks(count, lambda size: _compose(plan.radix, (table.draw(size, stream) for _ in range(plan.digits))))


# --- the Laplace law --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def geometric_tables(scale: float) -> tuple[Table, ...]:
    """Make one table per digit, lowest first, of P(x) ∝ exp(−x/scale), x ≥ 0."""
    if not (0.0 < scale <= MOST_SIGMA):
        raise ValueError(f"the sampler serves scales above 0 and up to 2^40 grid steps, got {scale}; use another grid")
    digits = 1
    while _LAPLACE_RADIX**digits < _LAPLACE_TAIL * scale:
        digits += 1
    with localcontext(_decimals()):
        return tuple(
            _table_of_weights((-Decimal(_LAPLACE_RADIX**digit) / Decimal(scale)).exp()) for digit in range(digits)
        )


def discrete_laplace(count: int, scale: float, stream: Stream) -> Integers:
    """Draw `count` independent values of P(x) ∝ exp(−|x|/scale), scale in grid steps, each within 2^-100 of the law."""
    tables = geometric_tables(scale)

    def draw(size: int) -> Integers:
        one, other = (_compose(_LAPLACE_RADIX, (table.draw(size, stream) for table in tables)) for _ in range(2))
        one -= other
        return one

    return _in_chunks(count, draw)


# --- parts ------------------------------------------------------------------------------------------------------------


def _compose(radix: int, digits: Iterable[Integers]) -> Integers:
    """Σ_j radix^j·digit_j."""
    total: Integers | None = None
    factor = 1
    for digit in digits:
        digit *= factor
        total = digit if total is None else np.add(total, digit, out=total)
        factor *= radix
    assert total is not None
    return total


def _in_chunks(count: int, draw: Callable[[int], Integers]) -> Integers:
    if count <= _CHUNK:
        return draw(count)
    drawn = np.empty(count, np.int64)
    for start in range(0, count, _CHUNK):
        drawn[start : start + _CHUNK] = draw(min(_CHUNK, count - start))
    return drawn


def _squares(radix: int, digits: int) -> int:
    """Σ_{j<digits} radix^(2j)."""
    return int(sum((radix * radix) ** digit for digit in range(digits)))


def _largest_radix(sigma: float, digits: int) -> int:
    """Largest a with σ²/Σ_j a^(2j) ≥ (100/2π²)(1 + a²)."""

    def exact(radix: int) -> bool:
        return sigma * sigma >= _SMOOTH * (1 + radix * radix) * _squares(radix, digits)

    radix: int = max(1, math.floor((sigma * sigma / _SMOOTH) ** (1.0 / (2 * digits))))  # an upper bound
    while not exact(radix):
        radix -= 1
    return radix


def _decimals() -> Context:
    return Context(prec=60)


def _gaussian_weights(variance: Decimal, highest: int) -> list[Decimal]:
    """exp(−v²/2·variance) for v = 0..highest, each from the previous one by two products instead of an exponential."""
    weight, step, ratio = Decimal(1), (-1 / (2 * variance)).exp(), (-1 / variance).exp()
    weights = []
    for _ in range(highest + 1):
        weights.append(weight)
        weight, step = weight * step, step * ratio
    return weights


def _table_of_weights(ratio: Decimal) -> Table:
    """The law of weights ratio^y on y = 0.._LAPLACE_RADIX − 1."""
    weights, weight = [], Decimal(1)
    for _ in range(_LAPLACE_RADIX):
        weights.append(weight)
        weight *= ratio
    # tails[y] ∝ P(Y ≥ y), summed from the small end for precision.
    tails = list(_running(reversed(weights)))[::-1]
    scale = Decimal(1 << _CUT_BITS) / tails[0]
    cuts = [_floor(Decimal(1 << _CUT_BITS) - tail * scale) for tail in tails[1:]]
    return Table(0, [cut for cut in cuts if cut < 1 << _CUT_BITS])  # values beyond have probability 0


def _running(values: Iterable[Decimal]) -> Iterable[Decimal]:
    total = Decimal(0)
    for value in values:
        total += value
        yield total


def _floor(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_FLOOR))
