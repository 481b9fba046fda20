"""The record of owners: what their devices did with another owner's, all pairs together.

Only what was earned is in a record, never what was handed down of it: that would grow with every new device.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from services.kit.rows import Tx
from services.trust.domain.evidence import Evidence, Pieces, fold, tabled
from services.trust.domain.graph import Integers
from services.trust.domain.parameters import TrustParameters
from services.trust.store import records


async def add_to_records(tx: Tx, pieces: Pieces, low: Integers, high: Integers, parameters: TrustParameters) -> None:
    """Adds evidence to the records of its owners; `low` and `high` are the devices of each piece.

    What one owner's devices do among themselves is nobody's record.
    """
    if not len(pieces):
        return
    ends = np.unique(np.concatenate((low, high)))
    known = await records.owners_of(tx, ends.tolist())
    of = np.array([known[number] for number in ends.tolist()], dtype=np.int64)
    one, other = of[np.searchsorted(ends, low)], of[np.searchsorted(ends, high)]
    apart = one != other
    if not apart.any():
        return
    keys = (np.minimum(one, other)[apart] << 32) | np.maximum(one, other)[apart]
    wanted, place = np.unique(keys, return_inverse=True)
    before = await records.some(tx, wanted.tolist())
    table = tabled([before.get(key, Evidence()) for key in wanted.tolist()])
    part = replace(pieces.at_rows(apart), pairs=place.reshape(-1))
    after = await asyncio.to_thread(fold, table, part, parameters)
    columns = [column.tolist() for column in (wanted, wanted >> 32, wanted & 0xFFFFFFFF, *after.columns())]
    await records.save(tx, list(zip(*columns, strict=True)))
