"""The social-IoT files of Santander (Marche et al. 2020), from a folder or from the tar archive.

Traps of the format: the first column of `private_static_devices.csv` is labelled device_type but holds the device;
`private_mobile_devices.csv` names the *user* whose devices move and its clock runs 1,728,000 s ahead of the public
file's; owner 0 is the municipality; brand and model 0 mean "not known". Positions lie in a unit square of about
4.44 km. Carriers: a private device is carried by its user u as carrier u, a public vehicle d is its own carrier −d.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie_lab.datasets.city import MOBILE_KINDS, SIDE_METRES
from services.trust.domain.graph import Integers
from services.trust.domain.population import NO_CARRIER, PUBLIC_OWNER, Population, Stays
from services.trust.readers.lines import Line, lines, open_member

SOURCE = "https://www.social-iot.org (Marche et al. 2020, data set of Santander)"
PRIVATE_CLOCK_AHEAD_SECONDS = 1_728_000.0

OBJECTS = "objects_description.csv"
PRIVATE_STATIC = "private_static_devices.csv"
PRIVATE_MOBILE = "private_mobile_devices.csv"
PUBLIC_STATIC = "public_static_devices.csv"
PUBLIC_MOBILE = "public_mobile_devices.csv"


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device's profile and the line it was read from."""

    line: int
    device: int
    owner: int
    kind: int
    brand: int
    model: int


@dataclass(frozen=True, slots=True)
class PlaceRecord:
    """Where a static device stands, in metres."""

    line: int
    device: int
    x_metres: float
    y_metres: float


@dataclass(frozen=True, slots=True)
class StayRecord:
    """A rest of a carrier: seconds on the public file's clock, metres."""

    line: int
    carrier: int
    start: float
    stop: float
    x_metres: float
    y_metres: float


def read_devices(source: Path, *, skip_lines: int = 0) -> Iterator[DeviceRecord]:
    """Every device of `objects_description.csv`, from the line after `skip_lines`."""
    for line in _read(source, OBJECTS, 5, skip_lines):
        names = ("id_device", "id_user", "device_type", "device_brand", "device_model")
        device, owner, kind, brand, model = (line.integer(column, name) for column, name in enumerate(names))
        if device < 1 or min(owner, brand, model) < 0:
            raise line.bad(f"device ids start at 1 and owner, brand, model at 0, not {','.join(line.fields)}")
        yield DeviceRecord(line=line.number, device=device, owner=owner, kind=kind, brand=brand, model=model)


def read_places(source: Path, file: str, *, skip_lines: int = 0) -> Iterator[PlaceRecord]:
    """Every place of `PRIVATE_STATIC` or `PUBLIC_STATIC`, from the line after `skip_lines`."""
    for line in _read(source, file, 3, skip_lines):
        x, y = _position(line, 1)
        yield PlaceRecord(line.number, line.integer(0, "id_device"), x, y)


def read_stays(source: Path, file: str, *, skip_lines: int = 0) -> Iterator[StayRecord]:
    """Every stay of `PRIVATE_MOBILE` or `PUBLIC_MOBILE`, on one clock, from the line after `skip_lines`."""
    ahead, sign = (PRIVATE_CLOCK_AHEAD_SECONDS, 1) if file == PRIVATE_MOBILE else (0.0, -1)
    for line in _read(source, file, 5, skip_lines):
        start, stop = line.number_at(0, "timestamp_start") - ahead, line.number_at(1, "timestamp_stop") - ahead
        carrier = line.integer(2, "id_user" if sign > 0 else "id_device")
        if stop < start or carrier < 1:
            raise line.bad(f"a stay needs a carrier ≥ 1 and a stop not before its start, not {','.join(line.fields)}")
        x, y = _position(line, 3)
        yield StayRecord(line=line.number, carrier=sign * carrier, start=start, stop=stop, x_metres=x, y_metres=y)


def read_city(source: Path) -> tuple[Population, Stays]:
    """The whole data set: 16,216 devices and 411,731 stays of the published one, some 30 MB in memory."""
    devices = list(read_devices(source))
    places = {place.device: place for file in (PRIVATE_STATIC, PUBLIC_STATIC) for place in read_places(source, file)}
    nowhere = PlaceRecord(0, 0, float("nan"), float("nan"))
    spots = [places.get(record.device, nowhere) for record in devices]
    population = Population(
        devices=_column(record.device for record in devices),
        owners=_column(record.owner for record in devices),
        kinds=_column(record.kind for record in devices),
        brands=_column(record.brand for record in devices),
        models=_column(record.model for record in devices),
        carriers=_column(carrier_of(record) for record in devices),
        x_metres=np.array([spot.x_metres for spot in spots]),
        y_metres=np.array([spot.y_metres for spot in spots]),
    )
    return population, _stays(source)


def carrier_of(record: DeviceRecord) -> int:
    """Who moves the device: its user, itself (−id) for a public vehicle, none for a static one."""
    if record.kind not in MOBILE_KINDS:
        return NO_CARRIER
    return -record.device if record.owner == PUBLIC_OWNER else record.owner


def _stays(source: Path) -> Stays:
    # Rows are packed as they come: half a million small objects would be a hundred megabytes.
    carriers: list[int] = []
    numbers: list[tuple[float, float, float, float]] = []
    for file in (PRIVATE_MOBILE, PUBLIC_MOBILE):
        for stay in read_stays(source, file):
            carriers.append(stay.carrier)
            numbers.append((stay.start, stay.stop, stay.x_metres, stay.y_metres))
    table = np.array(numbers, dtype=np.float64).reshape(-1, 4)
    return Stays(_column(carriers), table[:, 0], table[:, 1], table[:, 2], table[:, 3])


def _read(source: Path, file: str, columns: int, skip_lines: int) -> Iterator[Line]:
    with open_member(source, file, source=SOURCE) as stream:
        yield from lines(stream, file, columns=columns, skip_lines=skip_lines)


def _position(line: Line, column: int) -> tuple[float, float]:
    x, y = line.number_at(column, "x"), line.number_at(column + 1, "y")
    return x * SIDE_METRES, y * SIDE_METRES


def _column(values: Iterable[int]) -> Integers:
    return np.fromiter(values, dtype=np.int64)
