"""A clip norm that follows the quantile of the norms: its formula, its price, and how far a liar moves it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coterie.privacy.adaptive import (
    COUNT_SHARE,
    AdaptiveClip,
    amplitude,
    farthest_share,
    joint_norm,
    share_within,
)
from coterie.privacy.grid import counted, noised_and_counted, squared_norm
from coterie.privacy.releases import COUNT, Change, CountedChange
from coterie.privacy.simulation import SeededStream

MEDIAN = AdaptiveClip(0.5)


def test_the_next_norm_by_hand() -> None:
    """0.8 of the updates within a norm of 2, half wanted: 2·exp(−0.2·0.3) = 1.88353; 0.1 within: 2·exp(0.08)."""
    assert MEDIAN.next(2.0, 0.8, 1.0) == pytest.approx(1.8835291)
    assert MEDIAN.next(2.0, 0.1, 1.0) == pytest.approx(2.0 * math.exp(0.08))
    assert MEDIAN.next(2.0, 0.5, 1.0) == 2.0
    assert AdaptiveClip(0.9, 1.0).next(1.0, 0.0, 1.0) == pytest.approx(math.exp(0.9))


def test_update_and_bit_by_hand() -> None:
    """K = 1 in 1,024 steps: a = ⌊0.3·1024⌋ = 307, and the update has √(1024² − 307²) = 976.9 steps left.

    (3, 4) is longer than that, so it is sent as 976.9 − √2/2 − 1 steps along (0.6, 0.8) = (585.1, 780.1), and −307.
    (0.03, 0.04) is within: (30.7, 41.0) and +307.
    """
    assert amplitude(1.0, 10) == 307
    assert counted(np.array([3.0, 4.0]), 1.0, 10).tolist() == [585, 780, -307]
    assert counted(np.array([0.03, 0.04]), 1.0, 10).tolist() == [31, 41, 307]
    assert counted(np.array([math.nan, 4.0]), 1.0, 10).tolist() == [0, 0, -307]
    assert joint_norm(1.0) == pytest.approx(1.0 / math.sqrt(0.91))


@settings(deadline=None)
@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e9, 1e9)), st.floats(1e-3, 1e3), st.integers(0, 12))
def test_update_and_bit_together_never_exceed_the_norm_that_is_charged(
    change: np.ndarray[tuple[int], np.dtype[np.float64]], norm: float, finer: int
) -> None:
    """‖(value, ±a)‖² ≤ B², in whole numbers: a device left out moves the sum by no more."""
    scale = math.ceil(math.log2(500.0 * math.sqrt(change.size + 1) / norm)) + finer
    whole = counted(change, norm, scale)
    assert squared_norm(whole) <= Fraction(math.ldexp(norm, scale)) ** 2
    assert abs(int(whole[-1])) == amplitude(norm, scale) > 0


def test_the_bit_costs_nothing_beside_the_update() -> None:
    change = {"w": np.ones((2, 3), np.float32), "b": np.zeros(2, np.float32)}
    both, alone = CountedChange(change, 0.5, 2.0), Change(change, 0.5, 2.0)
    assert both.charge("t", 1, "update") == alone.charge("t", 1, "update")
    reported = both.tensors(SeededStream(3))
    assert {name: (value.shape, value.dtype) for name, value in reported.items() if name != COUNT} == {
        name: (value.shape, value.dtype) for name, value in change.items()
    }


def test_noise_on_update_and_bit_is_what_the_charge_says() -> None:
    """z·K on every element; the bit has an amplitude of s·K, so its share has noise of z/(2s)."""
    reported = [noised_and_counted(np.zeros(4), 1.0, 2.0, SeededStream("spread", n)) for n in range(3000)]
    values, shares = np.array([change for change, _ in reported]), np.array([within for _, within in reported])
    assert values.std() == pytest.approx(2.0 * joint_norm(1.0), rel=0.03)
    assert shares.std() == pytest.approx(2.0 / (2.0 * COUNT_SHARE), rel=0.05)
    assert shares.mean() == pytest.approx(1.0, abs=0.25)


def test_without_noise_the_share_is_the_share() -> None:
    bits = [307, 307, -307, 307]
    assert share_within(sum(bits), 307, 4) == 0.75


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
def test_the_norm_comes_to_rest_at_the_quantile_in_spite_of_noise(quantile: float) -> None:
    """200 devices with norms of 1 to 3, evenly: begun a hundred times too large or too small."""
    norms, random = np.linspace(1.0, 3.0, 200), np.random.default_rng(1)
    for first in (200.0, 0.02):
        clip, adaptive, late = first, AdaptiveClip(quantile), []
        for number in range(260):
            within = float(np.mean(norms <= clip)) + random.normal(0.0, 0.3)
            clip = adaptive.next(clip, within, first)
            late += [clip] if number > 120 else []
        assert np.mean(late) == pytest.approx(1.0 + 2.0 * quantile, rel=0.12)


@given(st.floats(allow_nan=False), st.floats(1e-3, 1e3), st.floats(0.01, 0.99), st.floats(0.01, 1.0))
def test_a_round_moves_the_norm_by_at_most_a_factor_of_e_to_the_rate(
    reported: float, clip: float, quantile: float, rate: float
) -> None:
    moved = AdaptiveClip(quantile, rate).next(clip, reported, clip)
    assert clip * math.exp(-rate) * 0.999999 <= moved <= clip * math.exp(rate) * 1.000001


def test_one_liar_among_many_moves_the_norm_by_its_share() -> None:
    """50 devices, half within: a wrong bit moves b by 1/50, and the norm by e^(0.2/50), 0.4 %."""
    honest, lying = MEDIAN.next(1.0, 25 / 50, 1.0), MEDIAN.next(1.0, 26 / 50, 1.0)
    assert honest / lying == pytest.approx(math.exp(0.2 / 50))
    assert MEDIAN.next(1e6, 0.0, 1.0) == 1e6  # never farther than a factor of a million from the task's own
    assert farthest_share(2.0) == pytest.approx(0.505 * (1.0 + 7.539 * 2.0 / 0.3), rel=1e-3)


@pytest.mark.parametrize(
    "wrong", [{"clip_quantile": 0.0}, {"clip_quantile": 1.0}, {"clip_quantile": 0.5, "clip_rate": 2}]
)
def test_senseless_numbers_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"parameters\.privacy\.clip_.*must be a number above 0"):
        AdaptiveClip.of({"privacy": wrong})
