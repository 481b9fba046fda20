"""Running sums of a pair's evidence, so that the cost of direct trust does not depend on the length of the history.
[SCFL] "Social-Aware Clustered Federated Learning", §III-B, eq (1); spec §1.3a.

With r the time of the latest piece of evidence, all sums of eq (1) decay together:

    Σ w_b exp(−ξ(t − t_b)) = exp(−ξ(t − r)) · Σ w_b exp(−ξ(r − t_b))          w_b = min(λ_b, D)/D

so the sums at r and r itself give e at every t ≥ r. A piece after r first ages the sums to its own time; a late one,
before r, enters aged by exp(−ξ(r − t_b)). Arrival order changes rounding only.

Unlike [SCFL], the count ages with the sums, K′ = Σ exp(−ξ(t − t_b)), and a prior of κ meetings is added to it: eq (1)'s
bare K lets a pair that meets daily fall to 0.12 in a year, and gives 1.0 after one meeting. The paper's
ratio is `scores.direct_trust`; what-if and reproduction use that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers
from services.trust.domain.parameters import LIVE, EvidenceRule, InvalidTrustParameters, TrustParameters
from services.trust.domain.scores import Interaction, InvalidInteraction, interaction_weight


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sums of a pair's counted history, aged to `reference_time`, the time of the latest piece.

    count, good: number of pieces and of good ones, never aged, for people. positive, negative: Σ w of each sign, in
    units of a full meeting. positive_weight, negative_weight: each sign's part of K′. witnessed, witnessed_weight: the
    part of positive and positive_weight that the platform witnessed.
    """

    count: int = 0
    good: int = 0
    positive: float = 0.0
    negative: float = 0.0
    positive_weight: float = 0.0
    negative_weight: float = 0.0
    witnessed: float = 0.0
    witnessed_weight: float = 0.0
    reference_time: float = 0.0

    @property
    def weight(self) -> float:
        """K′ at the reference time; 0 without evidence."""
        return self.positive_weight + self.negative_weight


SUMS = ("positive", "negative", "positive_weight", "negative_weight", "witnessed", "witnessed_weight")
"""Fields that age."""


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """`Evidence` of many pairs, column by column; all arrays have the same length."""

    counts: Integers
    goods: Integers
    positive: Floats
    negative: Floats
    positive_weight: Floats
    negative_weight: Floats
    witnessed: Floats
    witnessed_weight: Floats
    reference_times: Floats

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, pair: int) -> Evidence:
        return Evidence(*(column[pair].item() for column in self.columns()))

    def columns(self) -> list[npt.NDArray[Any]]:
        """The arrays, in the order of the fields."""
        return [getattr(self, item.name) for item in fields(self)]

    @property
    def weight(self) -> Floats:
        """K′ of every pair at its reference time."""
        return self.positive_weight + self.negative_weight

    @classmethod
    def empty(cls, pairs: int) -> EvidenceTable:
        """Return a table of `pairs` pairs without evidence."""
        columns: list[Any] = [np.zeros(pairs, dtype=np.int64) for _ in range(2)]
        return cls(*columns, *(np.zeros(pairs) for _ in range(len(SUMS) + 1)))

    def take(self, rows: npt.NDArray[Any]) -> EvidenceTable:
        """Return some rows, in the order given."""
        return EvidenceTable(*(column[rows] for column in self.columns()))

    def with_rows(self, rows: npt.NDArray[Any], other: EvidenceTable) -> EvidenceTable:
        """Return a copy in which `rows` are replaced by those of `other`."""
        columns = [column.copy() for column in self.columns()]
        for column, given in zip(columns, other.columns(), strict=True):
            column[rows] = given
        return EvidenceTable(*columns)

    def followed_by(self, other: EvidenceTable) -> EvidenceTable:
        """Concatenate both tables."""
        both = zip(self.columns(), other.columns(), strict=True)
        return EvidenceTable(*(np.concatenate(columns) for columns in both))


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of evidence, column by column: piece k belongs to pair `pairs[k]`, an index into a table.

    witnessed: the platform saw it. shares: how much of it counts, in [0, 1]; a negative share removes what counted
    before.
    """

    pairs: Integers
    positive: npt.NDArray[np.bool_]
    durations_seconds: Floats
    at: Floats
    witnessed: npt.NDArray[np.bool_]
    shares: Floats

    def __len__(self) -> int:
        return len(self.pairs)

    @classmethod
    def of(
        cls,
        pairs: npt.ArrayLike,
        positive: npt.ArrayLike,
        durations_seconds: npt.ArrayLike,
        at: npt.ArrayLike,
        witnessed: npt.ArrayLike = False,
        shares: npt.ArrayLike = 1.0,
    ) -> Pieces:
        """Build from lists; by default the platform witnessed none of them, and all count fully."""
        rows = np.asarray(pairs, dtype=np.int64)
        seen = np.asarray(witnessed, dtype=np.bool_)
        parts = np.asarray(shares, dtype=np.float64)
        return cls(
            pairs=rows,
            positive=np.asarray(positive, dtype=np.bool_),
            durations_seconds=np.asarray(durations_seconds, dtype=np.float64),
            at=np.asarray(at, dtype=np.float64),
            witnessed=np.broadcast_to(seen, rows.shape) if seen.ndim == 0 else seen,
            shares=np.broadcast_to(parts, rows.shape) if parts.ndim == 0 else parts,
        )

    def at_rows(self, rows: npt.NDArray[Any] | slice) -> Pieces:
        """Return some pieces, in the order given."""
        return Pieces(*(getattr(self, item.name)[rows] for item in fields(self)))

    def followed_by(self, other: Pieces) -> Pieces:
        """Concatenate both."""
        return Pieces(*(np.concatenate((getattr(self, f.name), getattr(other, f.name))) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Prior:
    """What a relation is worth before (and in addition to) evidence: `pseudo_count` interactions of value `closeness`.

    pseudo_count k₀ ≥ 0 is measured in interactions; 0 switches the prior off. closeness lies in [0, 1].
    """

    closeness: float = 0.0
    pseudo_count: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.closeness <= 1:
            raise InvalidTrustParameters(f"a prior's closeness must lie in [0, 1], got {self.closeness}")
        if not 0 <= self.pseudo_count < math.inf:
            raise InvalidTrustParameters(f"a prior's pseudo_count must be finite and ≥ 0, got {self.pseudo_count}")


NO_PRIOR = Prior()
"""The prior of an unrelated pair."""


def add(
    evidence: Evidence,
    interaction: Interaction,
    parameters: TrustParameters,
    *,
    witnessed: bool = False,
    share: float = 1.0,
) -> Evidence:
    """Return `evidence` with one more piece, of any time, in O(1)."""
    reference = max(evidence.reference_time, interaction.at) if evidence.weight else interaction.at
    unit = share * interaction_weight(interaction, reference, parameters)
    part = share * math.exp(-parameters.decay_rate * (reference - interaction.at))
    good, seen = interaction.positive, interaction.positive and witnessed
    parts = (unit * good, unit * (not good), part * good, part * (not good), unit * seen, part * seen)
    aging = _aging(evidence, reference, parameters)
    sums = {name: getattr(evidence, name) * aging + more for name, more in zip(SUMS, parts, strict=True)}
    more = int(share > 0)
    return Evidence(evidence.count + more, evidence.good + more * good, **sums, reference_time=reference)


def merge(one: Evidence, other: Evidence, parameters: TrustParameters) -> Evidence:
    """Return the evidence of two disjoint parts of a pair's history together; order does not matter."""
    if not one.weight or not other.weight:
        return one if one.weight else other
    reference = max(one.reference_time, other.reference_time)
    first, second = _aging(one, reference, parameters), _aging(other, reference, parameters)
    sums = {name: getattr(one, name) * first + getattr(other, name) * second for name in SUMS}
    return Evidence(one.count + other.count, one.good + other.good, **sums, reference_time=reference)


def direct_trust_at(
    evidence: Evidence, now: float, parameters: TrustParameters, rule: EvidenceRule = LIVE, prior: Prior = NO_PRIOR
) -> float:
    """Return e at any `now` not before the latest piece of evidence. Spec §1.3a:

        e = clamp01( min( e₁, c + (1 − c)·clamp01(e₀) ) ),     c = `witness_cap`
        e₁ = (positive − ν·negative + k₀·closeness) / (K′ + max(κ, k₀))
        e₀ = the same without what the platform witnessed to be good

    so rounds done well together lift e to c at most, and confirmed meetings lift it further. A relation's prior
    replaces κ where it weighs more. The balance enters unclamped: a bad history cancels a prior, it does not dilute it.
    """
    if evidence.weight and not now >= evidence.reference_time:
        raise InvalidInteraction(
            f"evidence reaches to {evidence.reference_time}, after {now}; replay the interactions up to {now} instead"
        )
    aging = _aging(evidence, now, parameters)
    known = prior.pseudo_count * prior.closeness
    balance = aging * (evidence.positive - parameters.penalty * evidence.negative) + known
    total = aging * evidence.weight + max(rule.prior_weight, prior.pseudo_count)
    earned = (balance - aging * evidence.witnessed) / (total - aging * evidence.witnessed_weight)
    most = rule.witness_cap + (1.0 - rule.witness_cap) * min(1.0, max(0.0, earned))
    return min(most, max(0.0, balance / total))


def fold(table: EvidenceTable, pieces: Pieces, parameters: TrustParameters) -> EvidenceTable:
    """Return `table` with a batch of evidence added, in any order of time and pair.

    O(batch + pairs) without Python loops; the same numbers as `add` one by one, up to rounding. The first bad piece
    raises with its index and nothing is added.
    """
    _check_batch(len(table), pieces)
    rows, good, seen = pieces.pairs, pieces.positive, pieces.positive & pieces.witnessed
    known = table.weight > 0
    newest = np.where(known, table.reference_times, -math.inf)
    counting = pieces.shares != 0
    np.maximum.at(newest, rows[counting], pieces.at[counting])
    reference = np.where(np.isfinite(newest), newest, 0.0)
    aging = np.exp(-parameters.decay_rate * np.where(known, reference - table.reference_times, 0.0))
    # A piece with share 0 may be later than all that count; it must not overflow.
    parts = pieces.shares * np.exp(-parameters.decay_rate * np.maximum(reference[rows] - pieces.at, 0.0))
    full = parameters.full_duration_seconds
    units = parts * np.minimum(pieces.durations_seconds, full) / full
    size = len(table)
    chosen = ((units, good), (units, ~good), (parts, good), (parts, ~good), (units, seen), (parts, seen))
    sums: list[Any] = [
        np.maximum(getattr(table, name) * aging + np.bincount(rows[which], values[which], size), 0.0)
        for name, (values, which) in zip(SUMS, chosen, strict=True)
    ]
    signs = np.sign(pieces.shares)
    more = np.bincount(rows, signs, size).astype(np.int64)
    more_good = np.bincount(rows[good], signs[good], size).astype(np.int64)
    return EvidenceTable(table.counts + more, table.goods + more_good, *[*sums, reference])


def direct_trust_of(
    table: EvidenceTable,
    now: float,
    parameters: TrustParameters,
    rule: EvidenceRule = LIVE,
    closeness: Floats | float = 0.0,
    pseudo_counts: Floats | float = 0.0,
) -> Floats:
    """`direct_trust_at` for every pair of the table at once; priors as arrays of closeness and pseudo-count."""
    known = table.weight > 0
    late = known & ~(table.reference_times <= now)
    if late.any():
        pair = int(np.argmax(late))
        raise InvalidInteraction(
            f"pair {pair} has evidence up to {table.reference_times[pair]}, after {now}; replay the history"
        )
    aging = np.exp(-parameters.decay_rate * np.where(known, now - table.reference_times, 0.0))
    balance = aging * (table.positive - parameters.penalty * table.negative) + pseudo_counts * np.asarray(closeness)
    total = aging * table.weight + np.maximum(rule.prior_weight, pseudo_counts)
    earned = (balance - aging * table.witnessed) / (total - aging * table.witnessed_weight)
    most = rule.witness_cap + (1.0 - rule.witness_cap) * np.clip(earned, 0.0, 1.0)
    direct: Floats = np.minimum(np.maximum(balance / total, 0.0), most)
    return direct


def handed_down(record: Evidence, now: float, parameters: TrustParameters) -> Evidence:
    """Return a new pair's initial evidence from its two owners' record: all of the bad, half the good. Spec §1.3a.

    Aged to `now`, the time of the inheritance. The pair itself has not interacted, so its counts are 0.
    """
    aging = _aging(record, now, parameters)
    part = {name: aging * (1.0 if name.startswith("negative") else 0.5) for name in SUMS}
    sums = {name: getattr(record, name) * part[name] for name in SUMS}
    return Evidence(**sums, reference_time=max(now, record.reference_time))


def tabled(several: Sequence[Evidence]) -> EvidenceTable:
    """Convert evidence of some pairs to a table."""
    rows = [[getattr(entry, item.name) for item in fields(Evidence)] for entry in several]
    columns = [np.array(column) for column in zip(*rows, strict=True)] if rows else EvidenceTable.empty(0).columns()
    return EvidenceTable(*columns)


def _aging(evidence: Evidence, now: float, parameters: TrustParameters) -> float:
    return math.exp(-parameters.decay_rate * (now - evidence.reference_time)) if evidence.weight else 1.0


def _check_batch(size: int, pieces: Pieces) -> None:
    columns = [getattr(pieces, item.name) for item in fields(pieces)]
    if pieces.pairs.ndim != 1 or len({column.shape for column in columns}) != 1:
        raise InvalidInteraction(f"columns of a batch differ in length: {', '.join(str(c.shape) for c in columns)}")
    rows, durations, times = pieces.pairs, pieces.durations_seconds, pieces.at
    wrong = ~((durations >= 0) & (durations < math.inf)) | ~np.isfinite(times) | (rows < 0) | (rows >= size)
    wrong |= ~(np.abs(pieces.shares) <= 1)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise InvalidInteraction(
            f"interaction {k} (pair {rows[k]}, duration {durations[k]}, at {times[k]}) needs a pair of 0..{size - 1}, "
            "a finite duration ≥ 0, a finite time and a share in [−1, 1]"
        )
