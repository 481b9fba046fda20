"""Gowalla's friends and check-ins as SNAP publishes them (Cho, Myers & Leskovec 2011), from a folder.

`loc-gowalla_edges.txt` holds every friendship of 196,591 people in both directions; `loc-gowalla_totalCheckins.txt` has
user, time, latitude, longitude and place, separated by white space. Either may be gzipped.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from pathlib import Path

from services.trust.readers.lines import lines, open_text
from services.trust.readers.snap import read_ties

SOURCE = "https://snap.stanford.edu/data/loc-gowalla.html (Cho, Myers & Leskovec 2011)"
EDGES = "loc-gowalla_edges.txt"
CHECKINS = "loc-gowalla_totalCheckins.txt"
METRES_PER_DEGREE = 111_195.0


def read_friends(folder: Path) -> Iterator[tuple[int, int]]:
    """Every friendship once."""
    for tie in read_ties(_file(folder, EDGES), source=SOURCE):
        if tie.a < tie.b:
            yield tie.a, tie.b


def read_places(folder: Path, users: Container[int] | None = None) -> dict[int, tuple[float, float]]:
    """Where each of the users checked in most often, the first of equals: metres east and north of latitude 0."""
    visits: dict[int, dict[int, int]] = {}
    spots: dict[int, tuple[float, float]] = {}
    path = _file(folder, CHECKINS)
    with open_text(path, source=SOURCE) as stream:
        for line in lines(stream, path.name, columns=5, separator=None, header=False):
            user, place = line.integer(0, "user"), line.integer(4, "location id")
            latitude, longitude = line.number_at(2, "latitude"), line.number_at(3, "longitude")
            if not (abs(latitude) <= 90 and abs(longitude) <= 180):
                raise line.bad(f"latitude and longitude are degrees, not {latitude} and {longitude}")
            if users is not None and user not in users:
                continue
            spots.setdefault(place, (latitude, longitude))
            times = visits.setdefault(user, {})
            times[place] = times.get(place, 0) + 1
    return {user: _metres(*spots[max(times, key=lambda place: times[place])]) for user, times in visits.items()}


def _metres(latitude: float, longitude: float) -> tuple[float, float]:
    """On a globe laid flat at that latitude: right for distances within a city."""
    return longitude * METRES_PER_DEGREE * math.cos(math.radians(latitude)), latitude * METRES_PER_DEGREE


def _file(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.is_file() else folder / name
