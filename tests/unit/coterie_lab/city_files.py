"""A city written in the files of the Santander data set, so that its reader has something to read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coterie_lab.datasets.city import SIDE_METRES
from coterie_lab.datasets.santander import (
    OBJECTS,
    PRIVATE_CLOCK_AHEAD_SECONDS,
    PRIVATE_MOBILE,
    PRIVATE_STATIC,
    PUBLIC_MOBILE,
    PUBLIC_STATIC,
)
from services.trust.domain.population import Population, Stays


def write_city(folder: Path, population: Population, stays: Stays) -> None:
    """Saves a city in the data set's own files, so that `read_city(folder)` reads it back."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(
        folder / OBJECTS,
        "id_device,id_user,device_type,device_brand,device_model",
        zip(population.devices, population.owners, population.kinds, population.brands, population.models, strict=True),
    )
    x, y = population.x_metres / SIDE_METRES, population.y_metres / SIDE_METRES
    for file, first, public in ((PRIVATE_STATIC, "device_type", False), (PUBLIC_STATIC, "id_device", True)):
        rows = np.flatnonzero(~population.mobile & (population.public == public) & ~np.isnan(x))
        _write(folder / file, f"{first},x,y", zip(population.devices[rows], x[rows], y[rows], strict=True))
    for file, who, sign in ((PRIVATE_MOBILE, "id_user", 1), (PUBLIC_MOBILE, "id_device", -1)):
        rows = np.flatnonzero(np.sign(stays.carriers) == sign)
        ahead = PRIVATE_CLOCK_AHEAD_SECONDS if sign > 0 else 0.0
        columns = (stays.start[rows] + ahead, stays.stop[rows] + ahead, stays.carriers[rows] * sign)
        spots = (stays.x_metres[rows] / SIDE_METRES, stays.y_metres[rows] / SIDE_METRES)
        _write(folder / file, f"timestamp_start,timestamp_stop,{who},x,y", zip(*columns, *spots, strict=True))


def _write(path: Path, header: str, rows: Iterable[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(header + "\n")
        file.writelines(",".join(str(value) for value in row) + "\n" for row in rows)
