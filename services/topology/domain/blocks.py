"""Which device transmits on which resource block of a station: most devices first, then least total delay. [DPVD]

The Hungarian method on the delays, with every inadmissible entry replaced by BIG = 1 + min(k, R) · (largest admissible
delay): one more device served outweighs any saving of delay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from services.kit.errors import InvalidInput

UNSERVED = -1
"""The block of a device that no block can serve within the limit."""


class InvalidBlocks(InvalidInput):
    """A delay table or a limit that makes no sense."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Block of each device (`UNSERVED` where none), how many are served, and the sum of their delays in seconds."""

    block: NDArray[np.int64]
    served: int
    total_delay: float


def allocate_blocks(delay: ArrayLike, limit: float) -> Allocation:
    """One block per device and one device per block, within `limit` seconds (a delay equal to it is admissible).

    delay: seconds, shape (devices, blocks), +inf where the block cannot carry the device.  limit: Γ ≥ 0, may be +inf.
    O(n³) in the larger side. Without devices or blocks no device is served.
    """
    table = np.asarray(delay, dtype=float)
    if table.ndim != 2:
        if table.size:
            raise InvalidBlocks(f"delay must be a table device × block, not an array of shape {table.shape}")
        table = table.reshape(len(table) if table.ndim else 0, 0)
    if np.isnan(table).any() or (table < 0).any():
        raise InvalidBlocks("delay holds a negative number or NaN; delays are seconds, 0 or more, or infinite")
    if np.isnan(limit) or limit < 0:
        raise InvalidBlocks(f"limit is {limit}; give the delay limit in seconds, 0 or more")
    return _allocate(table, limit)


def _allocate(table: NDArray[np.float64], limit: float) -> Allocation:
    block = np.full(table.shape[0], UNSERVED, dtype=np.int64)
    admissible = (table <= limit) & np.isfinite(table)
    if not admissible.any():
        return Allocation(block, 0, 0.0)
    # In units of the largest admissible delay, so that microseconds and hours keep the same precision beside BIG.
    unit = float(table[admissible].max()) or 1.0
    big = 1.0 + min(table.shape)
    rows, columns = linear_sum_assignment(np.where(admissible, np.where(admissible, table, 0.0) / unit, big))
    retained = admissible[rows, columns]
    rows, columns = rows[retained], columns[retained]
    block[rows] = columns
    return Allocation(block, int(rows.size), float(table[rows, columns].sum()))
