"""The uplink: rates and delays by hand, layouts and their refusals."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.topology.domain.radio import (
    NO_TASK,
    InvalidLayout,
    Layout,
    Station,
    User,
    delays,
    draw_delays,
    random_layout,
    uplink_rate,
)

CELL = Station(0.0, 0.0, frozenset({0}), (0.0, 1e-9))


def test_the_rate_by_hand() -> None:
    # SINR 3 on 150 kHz: log₂(1 + 3) = 2 bits per hertz → 300 kb/s.
    rate = uplink_rate(np.array(3e-7), np.array(0.01), np.array(1e-9), np.array(150e3), 0.0)
    assert float(rate) == pytest.approx(300e3)


def test_the_delay_by_hand() -> None:
    # d = 100 m: h = 1e-4, P h = 1e-6; block 0: I = 0, W N₀ = 6e-16; block 1: I = 1e-9.
    layout = Layout((CELL,), (User(60.0, 80.0, 0, 10),), 1)
    quiet = 2.5e5 / (150e3 * math.log2(1 + 1e-6 / 6e-16))
    noisy = 2.5e5 / (150e3 * math.log2(1 + 1e-6 / (1e-9 + 6e-16)))
    assert delays(layout)[0, 0] == pytest.approx([quiet, noisy])


def test_a_device_on_the_antenna_is_one_metre_away() -> None:
    assert Layout((CELL,), (User(0.0, 0.0, 0, 10),), 1).distances()[0, 0] == 1.0


@given(st.floats(1.0, 500.0), st.floats(1.1, 3.0))
def test_farther_is_slower(distance: float, factor: float) -> None:
    layout = Layout((CELL,), (User(distance, 0.0, 0, 1), User(factor * distance, 0.0, 0, 1)), 1)
    near, far = delays(layout)[0, :, 1]
    assert far > near


def test_smaller_stations_are_padded_with_impossible_blocks() -> None:
    one = Station(0.0, 0.0, frozenset({0}), (1e-9,))
    layout = Layout((CELL, one), (User(10.0, 0.0, 0, 1),), 1)
    assert np.isinf(delays(layout)[1, 0, 1])
    assert np.isfinite(delays(layout)[1, 0, 0])


def test_fading_is_seeded_log_normal_in_decibels() -> None:
    layout = Layout((CELL,), (User(100.0, 0.0, 0, 1),), 1, fading_decibels=2.0)
    first = draw_delays(layout, np.random.default_rng(1), 4000)
    assert np.array_equal(first, draw_delays(layout, np.random.default_rng(1), 4000))
    # Inverting rate → gain on block 1 must give back 2 dB of standard deviation around the mean channel.
    snr = 2.0 ** (2.5e5 / 150e3 / first[:, 0, 0, 1]) - 1.0
    decibels = 10 * np.log10(snr * (1e-9 + 6e-16) / 1e-6)
    assert decibels.mean() == pytest.approx(0.0, abs=0.15)
    assert decibels.std() == pytest.approx(2.0, abs=0.15)
    assert draw_delays(layout, np.random.default_rng(1), 0).shape == (0, 1, 1, 2)


def test_shares_are_parts_of_the_tasks_data() -> None:
    users = (User(0, 0, 0, 30), User(0, 0, 0, 10), User(0, 0, 1, 5), User(0, 0, NO_TASK, 9), User(0, 0, 1, 0))
    layout = Layout((CELL,), users, 3)
    assert layout.shares().tolist() == [0.75, 0.25, 1.0, 0.0, 0.0]
    assert layout.handled().tolist() == [[True, True, False, False, False]]


def test_the_fingerprint_follows_every_part_of_the_layout() -> None:
    base = random_layout(np.random.default_rng(3))
    again = random_layout(np.random.default_rng(3))
    assert base.fingerprint() == again.fingerprint()
    moved = dataclasses.replace(base.users[0], samples=base.users[0].samples + 1)
    variants = [
        dataclasses.replace(base, users=(moved, *base.users[1:])),
        dataclasses.replace(base, stations=base.stations[:-1]),
        dataclasses.replace(base, fading_decibels=2.0),
        dataclasses.replace(base, users=base.users[::-1]),
        dataclasses.replace(
            base, stations=(dataclasses.replace(base.stations[0], power_watts=0.02), *base.stations[1:])
        ),
    ]
    assert len({base.fingerprint(), *(v.fingerprint() for v in variants)}) == 6


@given(st.integers(1, 4), st.integers(0, 8), st.integers(1, 3), st.integers(1, 5), st.integers(0, 99))
def test_every_random_device_has_a_station_for_its_task(
    stations: int, users: int, blocks: int, tasks: int, seed: int
) -> None:
    layout = random_layout(np.random.default_rng(seed), stations=stations, users=users, blocks=blocks, tasks=tasks)
    assert layout.handled().any(axis=0).all()
    assert delays(layout).shape == (stations, users, blocks)


def test_nonsense_layouts_are_refused() -> None:
    with pytest.raises(InvalidLayout, match="no station"):
        Layout((), (), 1)
    with pytest.raises(InvalidLayout, match="at least one model"):
        Layout((CELL,), (), 0)
    with pytest.raises(InvalidLayout, match=r"\[2\]"):
        Layout((CELL,), (User(0, 0, 2, 1),), 2)
    with pytest.raises(InvalidLayout, match="payload_bits"):
        Layout((CELL,), (), 1, payload_bits=0.0)
    with pytest.raises(InvalidLayout, match="samples"):
        User(0, 0, 0, -1)
    with pytest.raises(InvalidLayout, match="finite metres"):
        User(math.nan, 0, 0, 1)
    with pytest.raises(InvalidLayout, match="power_watts"):
        dataclasses.replace(CELL, power_watts=0.0)
    with pytest.raises(InvalidLayout, match="interference"):
        dataclasses.replace(CELL, interference_watts=(-1.0,))
    with pytest.raises(InvalidLayout, match="no network"):
        random_layout(np.random.default_rng(0), stations=0)
