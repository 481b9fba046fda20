"""Invents a city like Santander's social-IoT data set, for machines without the files. Everything here is synthetic.

Kept from the published city (Marche et al. 2020): the table of device types, a fixed number of owners per type
(ownership share × users), public devices in proportion, exactly one device of unknown make per user, a unit square of
about 4.44 km, ten days, and the distributions of how long people rest and how far from home. Not kept: the map. Homes
lie anywhere, public devices about the centre, people do not seek each other out, vehicles run between random stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from services.kit.errors import InvalidInput
from services.trust.domain.graph import Floats, Integers
from services.trust.domain.population import NO_CARRIER, PUBLIC_OWNER, UNKNOWN_MAKE, Population, Stays

SIDE_METRES = 4_440.0
"""Side of Santander's unit square, derived from the lattice of coordinates; the authors do not state it."""
CENTRE_METRES = 300.0
"""Spread of public devices about the centre; puts about as many within Wi-Fi range as the published city has."""
BRANDS, MODELS = 12, 24
REFERENCE_USERS = 4_000


class InvalidCity(InvalidInput):
    """A city that cannot be built."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A type of device: its code, whether it moves, and how many there are.

    ownership_percent: share of users who own one (private kinds). count: number in a city of 4,000 users (public ones).
    """

    code: int
    name: str
    mobile: bool
    ownership_percent: int = 0
    count: int = 0


KINDS = (
    DeviceKind(1, "smartphone", True, ownership_percent=91),
    DeviceKind(2, "car", True, ownership_percent=55),
    DeviceKind(3, "tablet", True, ownership_percent=40),
    DeviceKind(4, "fitness tracker", True, ownership_percent=22),
    DeviceKind(5, "watch", True, ownership_percent=5),
    DeviceKind(6, "pc", False, ownership_percent=84),
    DeviceKind(7, "printer", False, ownership_percent=53),
    DeviceKind(8, "home sensors", False, ownership_percent=15),
    DeviceKind(9, "point of interest", False, count=95),
    DeviceKind(10, "weather station", False, count=140),
    DeviceKind(11, "transport", True, count=143),
    DeviceKind(12, "indicator", False, count=10),
    DeviceKind(13, "garbage truck", True, count=7),
    DeviceKind(14, "street light", False, count=506),
    DeviceKind(15, "parking", False, count=677),
    DeviceKind(16, "alarm", False, count=38),
)
MOBILE_KINDS = frozenset(kind.code for kind in KINDS if kind.mobile)


REST_SECONDS = (
    (0, 90),
    (0.25, 210),
    (0.5, 410),
    (0.75, 1_020),
    (0.9, 7_770),
    (0.95, 41_910),
    (0.98, 216_080),
    (1, 217_750),
)
"""Quantiles of people's rests in the published city: (share of rests, at most this many seconds)."""
HOME_DISTANCE = ((0, 0.0014), (0.05, 0.0115), (0.25, 0.0401), (0.5, 0.0968), (0.75, 0.2229), (0.9, 0.4121), (1, 0.9))
"""Quantiles of a rest's distance from home in the published city, in sides of the square."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How people and vehicles of the synthetic city move; times in seconds, defaults measured on the published city.

    walk_seconds: between two rests. stops_per_line, halt_seconds, ride_seconds: a vehicle's stops, the mean of a halt
    and the mean of a ride between two.
    """

    days: float = 10.0
    walk_seconds: float = 20.0
    stops_per_line: int = 400
    halt_seconds: float = 217.0
    ride_seconds: float = 820.0

    @property
    def seconds(self) -> float:
        """Length of the simulation."""
        return self.days * 86_400.0


DEFAULT_HABITS = Habits()


@dataclass(frozen=True, slots=True)
class City:
    """A synthetic city; `label` says so wherever results are shown."""

    label: str
    population: Population
    stays: Stays


def build_city(users: int, seed: int, habits: Habits = DEFAULT_HABITS) -> City:
    """The synthetic city of `users` people that `seed` stands for; the same arguments give the same city."""
    if users < 1:
        raise InvalidCity(f"a city needs at least one user, not {users}")
    rng = np.random.default_rng(seed)
    homes = rng.uniform(0, SIDE_METRES, (users, 2))
    owners, kinds = _devices(users, rng)
    devices = np.arange(1, len(owners) + 1)
    brands, models = _makes(owners, rng)
    mobile = np.isin(kinds, list(MOBILE_KINDS))
    carriers = np.where(mobile, np.where(owners == PUBLIC_OWNER, -devices, owners), NO_CARRIER)
    squares = _fold(rng.normal(SIDE_METRES / 2, CENTRE_METRES, (len(owners), 2)))
    places = np.where((owners == PUBLIC_OWNER)[:, None], squares, homes[owners - 1])
    places[mobile] = np.nan
    population = Population(
        devices=devices,
        owners=owners,
        kinds=kinds,
        brands=brands,
        models=models,
        carriers=carriers,
        x_metres=places[:, 0],
        y_metres=places[:, 1],
    )
    parts = [_walk(user + 1, home, habits, rng) for user, home in enumerate(homes)]
    parts += [_ride(int(carrier), habits, rng) for carrier in carriers[carriers < 0]]
    table = np.concatenate(parts)
    stays = Stays(table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3], table[:, 4])
    return City(f"synthetic city of {users} users, seed {seed}", population, stays)


def owners_of(kind: DeviceKind, users: int) -> int:
    """How many devices of the kind a city of `users` has: exact, not drawn."""
    share = kind.ownership_percent / 100 if kind.ownership_percent else kind.count / REFERENCE_USERS
    return round(share * users)


def _devices(users: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Owner and kind of every device, kind by kind, every person owning at least one where there are enough devices."""
    owned = np.zeros((len(KINDS), users), dtype=np.bool_)
    public = []
    for row, kind in enumerate(KINDS):
        if kind.ownership_percent:
            owned[row, rng.choice(users, owners_of(kind, users), replace=False)] = True
        else:
            public.append(np.full(owners_of(kind, users), kind.code))
    for empty in np.flatnonzero(~owned.any(axis=0)):
        richest = int(np.argmax(owned.sum(axis=0)))
        if owned[:, richest].sum() > 1:
            row = int(np.argmax(owned[:, richest]))
            owned[row, richest], owned[row, empty] = False, True
    rows, columns = np.nonzero(owned)
    kinds = np.concatenate((np.array([kind.code for kind in KINDS])[rows], *public)).astype(np.int64)
    owners = np.concatenate((columns + 1, np.full(len(kinds) - len(rows), PUBLIC_OWNER))).astype(np.int64)
    return owners, kinds


def _makes(owners: Integers, rng: np.random.Generator) -> tuple[Integers, Integers]:
    """Brand and model of every device: drawn for private ones but unknown for one of each user's, 1 for public ones."""
    public = owners == PUBLIC_OWNER
    brands = np.where(public, 1, rng.integers(1, BRANDS + 1, len(owners)))
    models = np.where(public, 1, rng.integers(1, MODELS + 1, len(owners)))
    shuffled = rng.permutation(np.flatnonzero(~public))
    unknown = shuffled[np.unique(owners[shuffled], return_index=True)[1]]
    brands[unknown] = models[unknown] = UNKNOWN_MAKE
    return brands, models


def _walk(carrier: int, home: Floats, habits: Habits, rng: np.random.Generator) -> Floats:
    """A person's rests, one row (carrier, start, stop, x, y) each."""
    start, stop = _schedule(
        lambda count: _draw(REST_SECONDS, count, rng),
        lambda count: np.full(count, habits.walk_seconds),
        habits.seconds,
    )
    angle = rng.uniform(0, 2 * np.pi, len(start))
    reach = SIDE_METRES * _draw(HOME_DISTANCE, len(start), rng)
    spots = home + reach[:, None] * np.column_stack((np.cos(angle), np.sin(angle)))
    return np.column_stack((np.full(len(start), carrier), start, stop, _fold(spots)))


def _fold(spots: Floats) -> Floats:
    """Spots mirrored at the border, so that nothing leaves the square and no crowd gathers on its edge."""
    inside: Floats = np.clip(SIDE_METRES - np.abs(SIDE_METRES - np.abs(spots)), 0, SIDE_METRES)
    return inside


def _draw(quantiles: tuple[tuple[float, float], ...], count: int, rng: np.random.Generator) -> Floats:
    """`count` draws from the law with these quantiles, log-linear in between."""
    shares, values = np.array(quantiles).T
    draws: Floats = np.exp(np.interp(rng.random(count), shares, np.log(values)))
    return draws


def _ride(carrier: int, habits: Habits, rng: np.random.Generator) -> Floats:
    """A vehicle's halts at the stops of its line, there and back again."""
    stops = rng.uniform(0, SIDE_METRES, (habits.stops_per_line, 2))
    start, stop = _schedule(
        lambda count: np.clip(rng.normal(habits.halt_seconds, habits.halt_seconds / 2, count), 60, 600),
        lambda count: rng.exponential(habits.ride_seconds, count),
        habits.seconds,
    )
    there_and_back = np.concatenate((np.arange(len(stops)), np.arange(len(stops) - 2, 0, -1)))
    spots = stops[there_and_back[np.arange(len(start)) % len(there_and_back)]]
    return np.column_stack((np.full(len(start), carrier), start, stop, spots))


def _schedule(
    rests: Callable[[int], Floats], moves: Callable[[int], Floats], seconds: float, batch: int = 256
) -> tuple[Floats, Floats]:
    """Start and stop of alternating moves and rests until `seconds` have passed; only whole rests are kept."""
    starts, stops, clock = [np.zeros(0)], [np.zeros(0)], 0.0
    while clock < seconds:
        rest, move = rests(batch), moves(batch)
        stop = clock + np.cumsum(rest + move)
        starts.append(stop - rest)
        stops.append(stop)
        clock = float(stop[-1])
    start, stop = np.concatenate(starts), np.concatenate(stops)
    return start[stop <= seconds], stop[stop <= seconds]
