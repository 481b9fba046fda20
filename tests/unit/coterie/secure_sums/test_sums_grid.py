"""The grid of a sum: as fine as fits, never wrapping round; and without noise that of the platform's clear sums."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save

from coterie.secure_sums.grid import (
    Extent,
    Grid,
    NoGrid,
    choose_grid,
    clear_scale,
    clear_values,
    grid_at,
    term_bits,
)
from services.aggregation.domain import accumulator
from services.aggregation.domain.layout import PREFIX_BYTES, Layout, header_length, parse


@settings(max_examples=200, deadline=None)
@given(
    st.integers(3, 2_000),
    st.integers(1, 2_000_000),
    st.floats(-6, 6).map(lambda e: 10.0**e),
    st.floats(-1, 1.5).map(lambda e: 10.0**e),
    st.floats(0.3, 1.0),
)
def test_a_grid_fits_and_no_finer_one_of_its_width_does(
    devices: int, elements: int, clip_norm: float, multiplier: float, part: float
) -> None:
    honest = max(1, math.floor(part * devices))
    try:
        grid = choose_grid(devices, elements, clip_norm, multiplier, honest)
    except NoGrid:
        return
    assert grid.faults(devices, slack=0.0) is None
    assert grid.largest_value(devices) <= 2 ** (grid.bits - 1) - 1
    finer = grid_at(grid.bits, grid.scale + 1, elements, clip_norm, multiplier, honest)
    too_fine = grid.scale + 1 > math.floor(math.log2(2**40 / clip_norm))
    assert too_fine or finer.largest_value(devices) > 2 ** (grid.bits - 1) - 1 or finer.share > 2**40


def test_32_bits_serve_a_thousand_devices_with_a_million_elements() -> None:
    assert choose_grid(1_000, 1_000_000, 1.0, 1.0, 585).bits == 32
    assert choose_grid(1_000, 99, 1.0, 1.0, 585).bits == 64


@pytest.mark.parametrize(
    ("devices", "elements", "clip_norm", "multiplier"),
    [(10, 10**6, 1.0, 1e9), (10, 5, 0.0, 1.0), (10, 5, math.inf, 1.0), (10, 5, 1.0, 0.0), (10, 5, 1.0, math.nan)],
)
def test_what_no_grid_serves_is_refused(devices: int, elements: int, clip_norm: float, multiplier: float) -> None:
    with pytest.raises(NoGrid):
        choose_grid(devices, elements, clip_norm, multiplier, 5)


@pytest.mark.parametrize(
    ("grid", "fault"),
    [
        (Grid(32, 20, 2.0**20, 2.0**31, 1_000), "wrap round"),
        (Grid(64, 20, 2.0**20, 2.0**41, 1_000), "too wide"),
        (Grid(64, 50, 2.0**50, 2.0**20, 1_000), "too fine"),
        (Grid(64, 10, 2.0**10, 2.0**10, 1_000), "too coarse for the vector"),
        (Grid(64, 20, 2.0**20, 63.0, 1_000), "too coarse for the noise"),
        (Grid(32, 20, 2.0**20, 2.0**16, 99), "64 bits"),
    ],
)
def test_a_device_names_what_is_wrong_with_a_grid(grid: Grid, fault: str) -> None:
    result = grid.faults(10)
    assert result is not None
    assert fault in result


def test_sums_beyond_what_so_many_devices_can_make_are_noticed() -> None:
    grid = choose_grid(50, 1_000, 1.0, 1.0, 30)
    largest = math.floor(grid.largest_value(40))
    honest = np.zeros(1_000, np.int64)
    assert Extent.of(honest).fault(40, grid) is None
    one = honest.copy()
    one[7] = largest
    assert Extent.of(one).fault(40, grid) is None
    one[7] = -largest - 2
    assert Extent.of(one).fault(40, grid) is not None
    everywhere = np.full(1_000, math.floor(grid.largest_norm(40) / math.sqrt(1_000)) + 1)
    assert np.abs(everywhere).max() < largest
    assert "longer" in (Extent.of(everywhere).fault(40, grid) or "")


def test_random_words_are_noticed_by_norm_or_by_range() -> None:
    """At b = 32, d ≥ 100 by their norm; at b = 64 by their range."""
    random = np.random.default_rng(3)
    for devices, elements in ((10, 100), (50, 7_850), (1_000, 7_850)):
        grid = choose_grid(devices, elements, 1.0, 1.0, math.ceil(0.6 * devices))
        assert grid.bits == 32
        words = random.integers(-(2**31), 2**31, elements)
        assert Extent.of(words).fault(devices, grid) is not None
    grid = choose_grid(10, 5, 1.0, 1.0, 6)
    assert grid.bits == 64
    assert Extent.of(random.integers(-(2**63), 2**63 - 1, 5)).fault(10, grid) is not None


# --- without noise ----------------------------------------------------------------------------------------------------


def read_layout(body: bytes) -> Layout:
    return parse(body[PREFIX_BYTES : PREFIX_BYTES + header_length(body[:PREFIX_BYTES], len(body))], len(body))


def read(body: bytes, start: int, length: int) -> bytes:
    return body[start : start + length]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**6), st.floats(1e-8, 1e8))
def test_scales_without_noise_are_the_clear_accumulators(updates: int, heaviest: float) -> None:
    assert clear_scale(updates, heaviest) == accumulator.choose_scale(updates, heaviest)
    assert term_bits(updates) == accumulator._term_bits(updates)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_values_without_noise_are_the_clear_accumulators_cells_to_the_bit(kind: type) -> None:
    random = np.random.default_rng(1)
    updates: list[tuple[NDArray[Any], float]] = [
        (random.normal(0, 1, 501).astype(kind), weight) for weight in (1.0, 3.0, 0.1)
    ]
    scale = clear_scale(3, 3.0)
    layout = read_layout(save({"w": updates[0][0]}))
    clear = accumulator.Accumulator(layout, scale, 3)
    total = np.zeros(501, np.int64)
    for change, weight in updates:
        body = save({"w": change})
        clear.fold(read_layout(body), partial(read, body), weight)
        total += clear_values(change, weight, scale, 3)
    assert np.concatenate(list(clear.pieces())).tolist() == total.tolist()
    assert Extent.of(total).clear_fault(3, 3) is None
    total[3] = 3 * 2 ** term_bits(3) + 1
    assert Extent.of(total).clear_fault(3, 3) is not None


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e6])
def test_values_too_large_for_a_clear_sum_are_refused(bad: float) -> None:
    with pytest.raises(NoGrid, match="too large"):
        clear_values(np.array([0.0, bad]), 1.0, clear_scale(10, 1.0), 10)
