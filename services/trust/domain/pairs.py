"""Running sums of all pairs in memory, and the trust graph they give at a moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from services.trust.domain.evidence import (
    NO_PRIOR,
    Evidence,
    EvidenceTable,
    Pieces,
    Prior,
    direct_trust_of,
    fold,
    tabled,
)
from services.trust.domain.graph import Floats, Integers, TrustGraph
from services.trust.domain.parameters import EvidenceRule, TrustParameters

EVIDENCE = (
    "count",
    "positive_count",
    "positive_sum",
    "negative_sum",
    "positive_weight",
    "negative_weight",
    "witnessed_sum",
    "witnessed_weight",
    "reference_at",
)
"""Table columns of an `EvidenceTable`, in its order."""
_WHOLE = ("low", "high", "count", "positive_count")
_FIELDS: dict[str, type[np.generic]] = {
    name: np.int64 if name in _WHOLE else np.float64 for name in ("low", "high", *EVIDENCE)
}


@dataclass(frozen=True, slots=True)
class PairSnapshot:
    """All pairs at one version: row k is pair number k + 1, between devices `low[k]` < `high[k]`.

    With priors, pairs that are related but never interacted follow, without evidence. `closeness` and `pseudo_counts`
    are those of `domain.evidence.Prior`; both are 0 without one.
    """

    version: int
    low: Integers
    high: Integers
    evidence: EvidenceTable
    closeness: Floats
    pseudo_counts: Floats

    def __len__(self) -> int:
        return len(self.low)

    @property
    def latest(self) -> float:
        """Time of the latest interaction; 0 without any."""
        return float(self.evidence.reference_times.max(initial=0.0))

    def direct(self, at: float, parameters: TrustParameters, rule: EvidenceRule) -> Floats:
        """Return the direct trust of every pair at `at`."""
        return direct_trust_of(
            self.evidence,
            at,
            parameters=parameters,
            rule=rule,
            closeness=self.closeness,
            pseudo_counts=self.pseudo_counts,
        )

    def with_priors(self, priors: Priors) -> PairSnapshot:
        """Return these pairs with the priors of their relations, followed by related pairs that never interacted."""
        own, theirs = (self.low << 32) | self.high, (priors.low << 32) | priors.high
        order = np.argsort(own)
        place = np.searchsorted(own, theirs, sorter=order)
        known = place < len(own)
        known[known] = own[order[place[known]]] == theirs[known]
        extra = int(np.count_nonzero(~known))
        closeness, pseudo_counts = np.zeros(len(self) + extra), np.zeros(len(self) + extra)
        rows = np.where(known, 0, np.cumsum(~known) - 1 + len(self))
        rows[known] = order[place[known]]
        closeness[rows], pseudo_counts[rows] = priors.closeness, priors.pseudo_counts
        return PairSnapshot(
            version=self.version,
            low=np.concatenate((self.low, priors.low[~known])),
            high=np.concatenate((self.high, priors.high[~known])),
            evidence=self.evidence.followed_by(EvidenceTable.empty(extra)),
            closeness=closeness,
            pseudo_counts=pseudo_counts,
        )

    def row_of(self, a: int, b: int) -> int | None:
        """Return the row of a pair, or None if it never interacted."""
        rows = np.flatnonzero((self.low == min(a, b)) & (self.high == max(a, b)))
        return int(rows[0]) if len(rows) else None

    def prior_of(self, row: int | None) -> Prior:
        """Return the prior of a pair's relations."""
        return NO_PRIOR if row is None else Prior(float(self.closeness[row]), float(self.pseudo_counts[row]))

    def evidence_of(self, row: int | None) -> Evidence:
        """Return a pair's evidence."""
        return Evidence() if row is None else self.evidence[row]

    def replayed(
        self, at: float, pieces: Pieces, begun: Mapping[int, Evidence], parameters: TrustParameters
    ) -> PairSnapshot:
        """Return the state at `at`: pairs with later evidence get the sums of `pieces` instead.

        begun: inherited evidence by row, of pairs that had it by then.
        """
        late = self.evidence.reference_times > at
        then = fold(begun_with(len(self), begun), pieces, parameters)
        return replace(self, evidence=self.evidence.with_rows(late, then.take(late)))


def begun_with(size: int, begun: Mapping[int, Evidence]) -> EvidenceTable:
    """Return a table of `size` pairs, some with inherited evidence."""
    rows = [row for row in begun if row < size]
    return EvidenceTable.empty(size).with_rows(np.array(rows, dtype=np.int64), tabled([begun[row] for row in rows]))


@dataclass(frozen=True, slots=True)
class Priors:
    """Priors of related pairs; each pair once, low < high."""

    low: Integers
    high: Integers
    closeness: Floats
    pseudo_counts: Floats


class LivePairs:
    """The current pairs: changes in place and hands out immutable snapshots."""

    def __init__(self) -> None:
        self.version = 0
        self._size = 0
        self._columns: dict[str, npt.NDArray[Any]] = {name: np.zeros(0, kind) for name, kind in _FIELDS.items()}
        self._row_of: dict[tuple[int, int], int] = {}
        self._snapshot: PairSnapshot | None = None

    def __len__(self) -> int:
        return self._size

    def row(self, low: int, high: int) -> int | None:
        """Return the row of a pair, or None."""
        return self._row_of.get((low, high))

    def take(self, rows: Iterable[tuple[Any, ...]], version: int) -> None:
        """Store rows (number, low, high, then `EVIDENCE`) as of `version`."""
        numbers, *columns = [np.array(column) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)]
        if len(numbers):
            places = numbers.astype(np.int64) - 1
            self._grow(int(places.max()) + 1)
            for name, column in zip(_FIELDS, columns, strict=True):
                self._columns[name][places] = column
            ends = zip(columns[0].tolist(), columns[1].tolist(), strict=True)
            self._row_of.update(zip(ends, places.tolist(), strict=True))
        self.version = max(self.version, version)
        self._snapshot = None

    def ends(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the devices of some rows."""
        return self._columns["low"][rows], self._columns["high"][rows]

    def evidence(self, rows: Integers) -> EvidenceTable:
        """Return the evidence of some rows."""
        return EvidenceTable(*(self._columns[name][rows] for name in EVIDENCE))

    def snapshot(self) -> PairSnapshot:
        """Return the current pairs, safe to read from another thread."""
        if self._snapshot is None:
            table = self.evidence(np.arange(self._size))
            low, high = (self._columns[name][: self._size].copy() for name in ("low", "high"))
            none = np.zeros(self._size)
            self._snapshot = PairSnapshot(
                version=self.version, low=low, high=high, evidence=table, closeness=none, pseudo_counts=none
            )
        return self._snapshot

    def _grow(self, size: int) -> None:
        capacity = len(self._columns["low"])
        if size > capacity:
            room = max(size, 2 * capacity, 1024) - capacity
            self._columns = {
                name: np.concatenate((column, np.zeros(room, column.dtype))) for name, column in self._columns.items()
            }
        self._size = max(self._size, size)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Where the ties of a set of pairs stand in compressed rows: all but their values."""

    low: Integers
    retained: npt.NDArray[np.bool_]
    order: Integers
    indptr: Integers
    indices: Integers


class GraphBuilder:
    """Builds trust graphs of snapshots; sorts ties again only when their set changes, not when they age."""

    def __init__(self, parameters: TrustParameters, rule: EvidenceRule) -> None:
        self._parameters = parameters
        self._rule = rule
        self._shape: _Shape | None = None

    def build(self, pairs: PairSnapshot, at: float, size: int) -> TrustGraph:
        """Return the graph at `at` over devices 0..size−1 (more, if pairs reach further)."""
        direct = pairs.direct(at, self._parameters, self._rule)
        retained = direct > 0
        shape = self._shape
        if shape is None or shape.low is not pairs.low or not np.array_equal(shape.retained, retained):
            shape = self._shape = _shape(pairs, retained)
        values = direct[retained]
        missing = max(0, size + 1 - len(shape.indptr))
        indptr = np.concatenate((shape.indptr, np.repeat(shape.indptr[-1:], missing)))
        both = np.concatenate((values, values))[shape.order]
        return TrustGraph(indptr, shape.indices, both, self._parameters.paths)


def _shape(pairs: PairSnapshot, retained: npt.NDArray[np.bool_]) -> _Shape:
    low, high = pairs.low[retained], pairs.high[retained]
    rows, columns = np.concatenate((low, high)), np.concatenate((high, low))
    order = np.lexsort((columns, rows))
    size = int(pairs.high.max(initial=-1)) + 1
    indptr = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=size), out=indptr[1:])
    return _Shape(pairs.low, retained, order, indptr, columns[order])
