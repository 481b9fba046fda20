"""A device's contribution to a sum: its change as whole numbers with its share of the noise, and the cost."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from coterie.privacy.discrete import Integers, discrete_gaussian
from coterie.privacy.grid import KERNEL_VARIANCE, counted, rounded
from coterie.privacy.stream import Stream
from coterie.secure_sums.acceptance import TermsRefused
from coterie.secure_sums.circle import Circle
from coterie.secure_sums.grid import NoGrid, clear_values
from coterie.secure_sums.terms import Terms


def contribution(change: NDArray[Any], terms: Terms, weight: float, stream: Stream, counts: bool = False) -> Integers:
    """Make the device's whole numbers; `TermsRefused` if they cannot be summed.

    change: all tensors, in the order of their data offsets in the model's file, flattened. With `counts`, one more
    element encodes whether it was within the clip norm (`privacy.adaptive`).
    """
    if change.size + counts != terms.elements:
        raise ValueError(f"the terms are for {terms.elements} elements, the change has {change.size}")
    if not 0.0 < weight <= float(terms.heaviest):
        raise TermsRefused("this device's weight is above the heaviest the terms allow for")
    if terms.noise == 0.0:
        try:
            return clear_values(change, weight, terms.scale, terms.count)
        except NoGrid as error:
            raise TermsRefused(str(error)) from error
    made = counted if counts else rounded
    values = made(change, float(terms.clip_norm), terms.scale, relative_weight(terms, weight))
    values += discrete_gaussian(terms.elements, terms.grid().share, stream)
    return values


def relative_weight(terms: Terms, weight: float) -> float:
    """Return the weight in (0, 1] of a sum with noise: if the heaviest is above 1, all are divided by it."""
    return weight / max(1.0, float(terms.heaviest))


def charged_multiplier(terms: Terms, circle: Circle) -> float:
    """Return the noise multiplier for the ledger, √(h·share² − 16)/B.

    h is the terms' number of honest devices, which gives z again; an owner who counts on named company alone counts its
    device and the company it requires.
    """
    grid, honest = terms.grid(), terms.honest
    if circle.count == "assume":
        return terms.noise
    believed = min(honest, 1 + circle.company_least)
    return math.sqrt(believed * grid.share**2 - KERNEL_VARIANCE) / grid.bound


def rho_alone(terms: Terms) -> float:
    """ρ = B²/(2·share²) of the device's own noise: the price if t clerks and the platform collude."""
    grid = terms.grid()
    return grid.bound**2 / (2.0 * grid.share**2)


def purpose(terms: Terms) -> str:
    """Name of the release in the ledger: other terms make another charge."""
    return f"sum-{terms.digest.hex()}"
