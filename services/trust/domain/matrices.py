"""Trust among many devices as the entries above the diagonal, computed block by block, so that memory grows with the
number of entries and not with the square of the devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.trust.domain.graph import Floats, Integers, TrustGraph
from services.trust.domain.scores import combine, direct_row
from services.trust.domain.search import best_products

MOST_ENTRIES = 2_500_000
"""Fits into the largest gRPC message."""
_BLOCK = 256
"""Devices searched from per block."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Pairs with positive combined trust, rows < columns (positions in the request), in order of row and column.

    `following` is the start of the next piece, 0 after the last.
    """

    rows: Integers
    columns: Integers
    direct: Floats
    trust: Floats
    following: int


def entries_among(graph: TrustGraph, devices: Integers, direct_weight: float, piece: int = 0) -> Entries:
    """Return the numbers of `domain.scores.trust_rows` for distinct devices, without zeros: one message of them, from
    `piece` on.

    As there, the search from the smaller device of a pair counts, because products multiplied in the opposite order
    may differ in the last bit. A piece holds the pairs of some devices with all larger ones.
    """
    order = np.argsort(devices)
    ranked = devices[order]
    parts: list[tuple[Integers, Integers, Floats, Floats]] = []
    total = 0
    block = max(1, min(_BLOCK, MOST_ENTRIES // max(len(ranked), 1)))
    start, following = piece, 0
    while start < len(ranked):
        sources = ranked[start : start + block]
        indirect = best_products(graph, sources, ranked)
        direct = np.stack([direct_row(graph, int(source))[ranked] for source in sources])
        trust = combine(direct, indirect, direct_weight)
        i, j = np.nonzero(np.triu(trust, k=start + 1))
        total += len(i)
        if parts and total > MOST_ENTRIES:
            following = start
            break
        parts.append((order[start + i], order[j], direct[i, j], trust[i, j]))
        start += block
    return _sorted(parts, following)


def _sorted(parts: list[tuple[Integers, Integers, Floats, Floats]], following: int) -> Entries:
    if not parts:
        none = np.zeros(0, dtype=np.int64)
        return Entries(none, none, np.zeros(0), np.zeros(0), 0)
    one, other, direct, trust = (np.concatenate(column) for column in zip(*parts, strict=True))
    rows, columns = np.minimum(one, other), np.maximum(one, other)
    order = np.lexsort((columns, rows))
    return Entries(rows[order], columns[order], direct[order], trust[order], following)
