"""Devices and their movements, column by column: the input of social relations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.kit.errors import InvalidInput
from services.trust.domain.graph import Floats, Integers

PUBLIC_OWNER = 0
"""Owner of public devices (the municipality)."""
NO_CARRIER = 0
"""Carrier of a static device."""
UNKNOWN_MAKE = 0
"""Brand and model of a device of unknown make."""


class InvalidPopulation(InvalidInput):
    """Columns that do not describe devices or stays."""


@dataclass(frozen=True, slots=True)
class Population:
    """Profiles of many devices; row k of every column is device `devices[k]`.

    owners: owner of each device, `PUBLIC_OWNER` for a public one. kinds: device type code. brands, models:
    `UNKNOWN_MAKE` where unknown. carriers: who or what moves it, an id shared with `Stays`; `NO_CARRIER` for a static
    device. x_metres, y_metres: position of a static device, NaN where unknown.
    """

    devices: Integers
    owners: Integers
    kinds: Integers
    brands: Integers
    models: Integers
    carriers: Integers
    x_metres: Floats
    y_metres: Floats

    def __post_init__(self) -> None:
        ids = [self.devices, self.owners, self.kinds, self.brands, self.models, self.carriers]
        _check_lengths(*ids, self.x_metres, self.y_metres)
        if len(np.unique(self.devices)) < len(self.devices):
            raise InvalidPopulation("a device id occurs more than once; ids must be unique")

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def public(self) -> npt.NDArray[np.bool_]:
        """Which devices belong to the public."""
        return np.equal(self.owners, PUBLIC_OWNER)

    @property
    def mobile(self) -> npt.NDArray[np.bool_]:
        """Which devices have a carrier."""
        return np.not_equal(self.carriers, NO_CARRIER)

    @property
    def places(self) -> Floats:
        """Positions of devices, one row (x, y) in metres each; NaN for carried ones and where unknown."""
        return np.where(self.mobile[:, None], np.nan, np.column_stack((self.x_metres, self.y_metres)))


@dataclass(frozen=True, slots=True)
class Stays:
    """Rests of carriers: from `start` to `stop` (seconds) carrier `carriers[k]` was at (x, y) metres."""

    carriers: Integers
    start: Floats
    stop: Floats
    x_metres: Floats
    y_metres: Floats

    def __post_init__(self) -> None:
        _check_lengths(self.carriers, self.start, self.stop, self.x_metres, self.y_metres)
        wrong = ~(self.stop >= self.start)
        if wrong.any():
            k = int(np.argmax(wrong))
            raise InvalidPopulation(f"stay {k} ends at {self.stop[k]}, before it starts at {self.start[k]}")

    def __len__(self) -> int:
        return len(self.carriers)

    @property
    def places(self) -> Floats:
        """One row (x, y) in metres per stay."""
        return np.column_stack((self.x_metres, self.y_metres))

    def of(self, carriers: npt.ArrayLike) -> Stays:
        """Return the stays of these carriers."""
        chosen = np.isin(self.carriers, np.asarray(carriers))
        return Stays(
            self.carriers[chosen],
            self.start[chosen],
            self.stop[chosen],
            self.x_metres[chosen],
            self.y_metres[chosen],
        )


def usual_places(population: Population, stays: Stays) -> Floats:
    """Return the usual place of every device: its position, or its carrier's longest single stay; NaN where unknown."""
    places = population.places
    order = np.lexsort((stays.start, -(stays.stop - stays.start), stays.carriers))
    carriers, first = np.unique(stays.carriers[order], return_index=True)
    if len(carriers):
        nearest = np.minimum(np.searchsorted(carriers, population.carriers), len(carriers) - 1)
        result = population.mobile & (carriers[nearest] == population.carriers)
        places[result] = stays.places[order][first[nearest[result]]]
    return places


def pairs_within(labels: npt.NDArray[np.generic], block_pairs: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield every pair of positions with equal labels, in blocks of at most `block_pairs` (or one position's pairs)."""
    order = np.argsort(labels, kind="stable")
    ranked = labels[order]
    ends = np.searchsorted(ranked, ranked, side="right")
    counts = ends - np.arange(len(ranked)) - 1
    totals = np.concatenate(([0], np.cumsum(counts)))
    start = 0
    while start < len(ranked):
        stop = max(start + 1, int(np.searchsorted(totals, totals[start] + block_pairs, side="right")) - 1)
        left = np.repeat(np.arange(start, stop), counts[start:stop])
        right = left + 1 + np.arange(len(left)) - (totals[left] - totals[start])
        if len(left):
            yield order[left], order[right]
        start = stop


def matches(labels: Integers, wanted: Integers) -> tuple[Integers, Integers]:
    """Return all (k, position) with `labels[position] == wanted[k]`: an inner join on equal labels."""
    order = np.argsort(labels, kind="stable")
    ranked = labels[order]
    low, high = np.searchsorted(ranked, wanted, "left"), np.searchsorted(ranked, wanted, "right")
    counts = high - low
    rows = np.repeat(np.arange(len(wanted)), counts)
    offsets = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, order[low[rows] + offsets]


def _check_lengths(*columns: npt.NDArray[np.generic]) -> None:
    if any(column.ndim != 1 for column in columns) or len({len(column) for column in columns}) != 1:
        raise InvalidPopulation(f"columns must have the same length, got shapes {[c.shape for c in columns]}")
