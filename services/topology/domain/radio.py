"""Cells, the devices around them and the uplink between: positions and fading in, seconds per block out. [DPVD]

The usual OFDMA uplink. Symbols: W_b block bandwidth, P transmit power, h gain, I interference, N₀ noise density, Z size
in bits.

    rate c = W_b log₂(1 + P h / (I + W_b N₀)),     delay = Z / c,     h = distance⁻² · fading

The source gives no channel equations that could be confirmed, so all of this is the specification's choice. With the
specification's constants and I = 0 every delay is near 0.06 s and its limit of 0.4 s never binds; `random_layout`
therefore draws an interference per block (around 4 nW) that puts the limit's range near 270 to 540 m.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from services.kit.errors import InvalidInput

Floats = NDArray[np.float64]

NO_TASK = -1
"""The task of a device that has no identity yet."""

NEAREST_METRES = 1.0
"""Distances below this count as this: the inverse-square gain has no meaning at the antenna."""


class InvalidLayout(InvalidInput):
    """Stations, devices or channel constants that make no sense together."""


@dataclass(frozen=True, slots=True)
class Station:
    """A base station. tasks: the models it aggregates. interference_watts: one value per resource block.

    power_watts is what a device may transmit with towards this station.
    """

    x_metres: float
    y_metres: float
    tasks: frozenset[int]
    interference_watts: tuple[float, ...]
    power_watts: float = 0.01
    bandwidth_hertz: float = 150e3
    delay_limit_seconds: float = 0.4

    def __post_init__(self) -> None:
        if not np.isfinite([self.x_metres, self.y_metres]).all():
            raise InvalidLayout(f"a station stands at ({self.x_metres}, {self.y_metres}); give finite metres")
        for name in ("power_watts", "bandwidth_hertz", "delay_limit_seconds"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise InvalidLayout(f"a station's {name} is {value}; give a finite number above 0")
        if any(not (np.isfinite(i) and i >= 0) for i in self.interference_watts):
            raise InvalidLayout(f"a block's interference is in {self.interference_watts}; give watts, 0 or more")

    @property
    def blocks(self) -> int:
        """R, the number of resource blocks."""
        return len(self.interference_watts)


@dataclass(frozen=True, slots=True)
class User:
    """A device as the scheduler sees it. task: its model or `NO_TASK`. samples: X ≥ 0; 0 is never scheduled."""

    x_metres: float
    y_metres: float
    task: int
    samples: int

    def __post_init__(self) -> None:
        if not np.isfinite([self.x_metres, self.y_metres]).all():
            raise InvalidLayout(f"a device stands at ({self.x_metres}, {self.y_metres}); give finite metres")
        if self.samples < 0:
            raise InvalidLayout(f"a device has {self.samples} samples; give 0 or more")


@dataclass(frozen=True, slots=True)
class Layout:
    """One radio network and its devices. tasks: K ≥ 1 models. payload_bits: Z, the size of one upload."""

    stations: tuple[Station, ...]
    users: tuple[User, ...]
    tasks: int
    noise_density: float = 4e-21
    payload_bits: float = 2.5e5
    fading_decibels: float = 1.0

    def __post_init__(self) -> None:
        if not self.stations:
            raise InvalidLayout("the layout has no station; register at least one cell before scheduling")
        if self.tasks < 1:
            raise InvalidLayout(f"{self.tasks} tasks; a multi-task plan needs at least one model")
        strange = {k for s in self.stations for k in s.tasks if not 0 <= k < self.tasks}
        strange |= {u.task for u in self.users if not (u.task == NO_TASK or 0 <= u.task < self.tasks)}
        if strange:
            raise InvalidLayout(f"tasks {sorted(strange)} do not exist; tasks are numbered 0..{self.tasks - 1}")
        for name, least in (("noise_density", 0.0), ("payload_bits", 0.0), ("fading_decibels", -1.0)):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > least) or value < 0:
                raise InvalidLayout(f"{name} is {value}; give a finite number in its physical range")

    @property
    def blocks(self) -> int:
        """The largest number of blocks of a station; smaller stations are padded with impossible ones."""
        return max(station.blocks for station in self.stations)

    def limits(self) -> Floats:
        """Γ of each station, seconds."""
        return np.array([station.delay_limit_seconds for station in self.stations])

    def samples(self) -> Floats:
        """X of each device."""
        return np.array([user.samples for user in self.users], dtype=float)

    def shares(self) -> Floats:
        """X_i / X_task: the part of its task's data each device holds; 0 without data or task."""
        task, count = np.array([user.task for user in self.users], dtype=int), self.samples()
        total = np.bincount(task[task >= 0], weights=count[task >= 0], minlength=self.tasks)
        own = np.where(task >= 0, total[task] if task.size else 0.0, 0.0)
        return np.divide(count, own, out=np.zeros_like(count), where=own > 0)

    def handled(self) -> NDArray[np.bool_]:
        """(station, device): the station aggregates the device's task and the device has data for it."""
        return np.array(
            [[u.task in s.tasks and u.samples > 0 for u in self.users] for s in self.stations], dtype=bool
        ).reshape(len(self.stations), len(self.users))

    def distances(self) -> Floats:
        """Metres, (station, device), never below `NEAREST_METRES`."""
        cells = np.array([(s.x_metres, s.y_metres) for s in self.stations]).reshape(-1, 1, 2)
        places = np.array([(u.x_metres, u.y_metres) for u in self.users]).reshape(1, -1, 2)
        metres: Floats = np.maximum(np.linalg.norm(cells - places, axis=2), NEAREST_METRES)
        return metres

    def fingerprint(self) -> str:
        """SHA-256 of everything above: two layouts share it exactly when they are the same."""
        cells = [(*astuple(s)[:2], sorted(s.tasks), *astuple(s)[3:]) for s in self.stations]
        places = [astuple(u) for u in self.users]
        constants = (self.tasks, self.noise_density, self.payload_bits, self.fading_decibels)
        return hashlib.sha256(repr((cells, places, constants)).encode()).hexdigest()


def uplink_rate(
    gain: Floats, power_watts: Floats, interference_watts: Floats, bandwidth_hertz: Floats, noise_density: float
) -> Floats:
    """c = W_b log₂(1 + P h / (I + W_b N₀)), bits per second. Arrays broadcast."""
    ratio = power_watts * gain / (interference_watts + bandwidth_hertz * noise_density)
    rate: Floats = bandwidth_hertz * np.log1p(ratio) / np.log(2.0)
    return rate


def delays(layout: Layout, fading: Floats | float = 1.0) -> Floats:
    """Seconds to send Z bits, (station, device, block); +inf on blocks a station does not have.

    fading: linear factor on the gain, broadcast to (station, device, block); 1 is the mean channel.
    """
    shape = (len(layout.stations), len(layout.users), layout.blocks)
    gain = np.broadcast_to(layout.distances()[:, :, None] ** -2.0 * fading, shape)
    answer = np.full(shape, np.inf)
    for b, station in enumerate(layout.stations):
        rate = uplink_rate(
            gain[b, :, : station.blocks],
            np.asarray(station.power_watts),
            np.asarray(station.interference_watts),
            np.asarray(station.bandwidth_hertz),
            layout.noise_density,
        )
        answer[b, :, : station.blocks] = layout.payload_bits / rate
    return answer


def draw_delays(layout: Layout, rng: np.random.Generator, size: int) -> Floats:
    """`size` independent states, (size, station, device, block): log-normal fading of `fading_decibels` per block."""
    shape = (size, len(layout.stations), len(layout.users), layout.blocks)
    fading = 10.0 ** (layout.fading_decibels * rng.normal(size=shape) / 10.0)
    return np.stack([delays(layout, draw) for draw in fading]) if size else np.empty(shape)


def measured_delays(layout: Layout, drawn: Floats, measured: Mapping[tuple[int, int], float]) -> Floats:
    """Drawn delays, (station, device, block), with what devices measured of their way to a station in their place.

    measured: seconds of one upload by (station, device). The blocks keep their proportions; the best takes what was
    measured. No device counts as quicker than the registered channel in one fade of a thousand (+3 σ).
    """
    if not measured:
        return drawn
    quickest = delays(layout, 10.0 ** (3.0 * layout.fading_decibels / 10.0)).min(axis=2, initial=np.inf)
    answer = drawn.copy()
    for (station, device), seconds in measured.items():
        best = drawn[station, device].min(initial=np.inf)
        if np.isfinite(best) and best > 0:
            answer[station, device] *= max(seconds, float(quickest[station, device])) / best
    return answer


def random_layout(
    rng: np.random.Generator,
    *,
    stations: int = 3,
    users: int = 12,
    blocks: int = 4,
    tasks: int = 2,
    radius_metres: float = 400.0,
    mean_interference_watts: float = 4e-9,
) -> Layout:
    """A disc of stations and devices. Station b aggregates task b mod K and each other task with probability ½.

    Interference per block is uniform in [½, 2] times the mean; samples are uniform in 20..100.
    """
    if stations < 1 or users < 0 or blocks < 0 or tasks < 1:
        raise InvalidLayout(f"{stations} stations, {users} devices, {blocks} blocks, {tasks} tasks make no network")
    cells = []
    for b, (x, y) in enumerate(_disc(rng, stations, 0.7 * radius_metres)):
        extra = {k for k in range(tasks) if rng.random() < 0.5}
        interference = mean_interference_watts * rng.uniform(0.5, 2.0, blocks)
        cells.append(Station(x, y, frozenset(extra | {b % tasks}), tuple(float(i) for i in interference)))
    covered = sorted({k for cell in cells for k in cell.tasks})
    places = _disc(rng, users, radius_metres)
    people = [User(x, y, covered[i % len(covered)], int(rng.integers(20, 101))) for i, (x, y) in enumerate(places)]
    return Layout(tuple(cells), tuple(people), tasks)


def _disc(rng: np.random.Generator, count: int, radius: float) -> list[tuple[float, float]]:
    """Points uniform in a disc."""
    distance, angle = radius * np.sqrt(rng.random(count)), 2 * np.pi * rng.random(count)
    points = zip(distance * np.cos(angle), distance * np.sin(angle), strict=True)
    return [(float(x), float(y)) for x, y in points]
