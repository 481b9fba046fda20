"""Owners' records: what their devices did with another owner's, summed over all pairs.

A record holds only own evidence, nothing inherited, which would grow with every new device.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from services.kit.database.rows import Tx
from services.kit.runtime.concurrency import thread_if_large
from services.trust.domain.evidence import Evidence, Pieces, fold, handed_down, tabled
from services.trust.domain.graph import Integers
from services.trust.domain.parameters import TrustParameters
from services.trust.store import records


async def add_to_records(tx: Tx, pieces: Pieces, low: Integers, high: Integers, parameters: TrustParameters) -> None:
    """Add evidence to the owners' records; `low` and `high` are the devices of each piece.

    Interactions among one owner's devices belong to no record.
    """
    if not len(pieces):
        return
    apart, keys = await _owners(tx, low, high)
    if not apart.any():
        return
    wanted, place = np.unique(keys[apart], return_inverse=True)
    before = await records.some(tx, wanted.tolist())
    table = tabled([before.get(key, Evidence()) for key in wanted.tolist()])
    part = replace(pieces.at_rows(apart), pairs=place.reshape(-1))
    after = await thread_if_large(len(part), fold, table, part, parameters)
    columns = [column.tolist() for column in (wanted, wanted >> 32, wanted & 0xFFFFFFFF, *after.columns())]
    await records.save(tx, list(zip(*columns, strict=True)))


async def debts_of(
    tx: Tx, low: Integers, high: Integers, now: float, parameters: TrustParameters
) -> dict[int, Evidence]:
    """Return what pairs that begin now inherit of a bad owners' record, by place; none where the record is good.

    Otherwise devices registered before their owner turned bad would have a clean name. Only new devices inherit a
    good record, never a pair by an act of one of its ends: no end's own report may raise trust.
    """
    apart, keys = await _owners(tx, low, high)
    known = await records.some(tx, np.unique(keys[apart]).tolist()) if apart.any() else {}
    bad = {
        key: begun
        for key, record in known.items()
        if record.negative > 0.0 and _owes(begun := handed_down(record, now, parameters), parameters)
    }
    return {k: bad[key] for k, key in enumerate(keys.tolist()) if key in bad} if bad else {}


def _owes(begun: Evidence, parameters: TrustParameters) -> bool:
    return begun.positive < parameters.penalty * begun.negative


async def _owners(tx: Tx, low: Integers, high: Integers) -> tuple[npt.NDArray[np.bool_], Integers]:
    """Return whether the two devices of each pair have different owners, and the key of those owners' record."""
    ends = np.unique(np.concatenate((low, high)))
    known = await records.owners_of(tx, ends.tolist())
    of = np.array([known[number] for number in ends.tolist()], dtype=np.int64)
    one, other = of[np.searchsorted(ends, low)], of[np.searchsorted(ends, high)]
    return one != other, (np.minimum(one, other) << 32) | np.maximum(one, other)
