"""Keeps what direct trust needs of a pair's history in four numbers, so that a score costs the same after ten
interactions or ten million. [SCFL] "Social-Aware Clustered Federated Learning", §III-B, eq (1).

With r the time of the latest interaction, eq (1) splits into sums that forget together:

    Σ w_b exp(−ξ(t − t_b)) = exp(−ξ(t − r)) · Σ w_b exp(−ξ(r − t_b))          w_b = min(λ_b, D)/D

so the two sums at r, the count K and r itself give e at every t ≥ r. An interaction after r first ages the sums to its
own time; one that arrives late, before r, enters aged by exp(−ξ(r − t_b)). Arrival order changes rounding only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers
from services.trust.domain.parameters import InvalidTrustParameters, TrustParameters
from services.trust.domain.scores import Interaction, InvalidInteraction, interaction_weight


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pair's history in four numbers.

    count: K, all interactions, never decayed. positive, negative: Σ w exp(−ξ(reference_time − t_b)) over each sort.
    reference_time: time of the latest interaction in seconds; means nothing while count = 0.
    """

    count: int = 0
    positive: float = 0.0
    negative: float = 0.0
    reference_time: float = 0.0


@dataclass(frozen=True, slots=True)
class EvidenceTable:
    """`Evidence` of many pairs, column by column: four arrays of one length."""

    counts: Integers
    positive: Floats
    negative: Floats
    reference_times: Floats

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, pair: int) -> Evidence:
        return Evidence(
            int(self.counts[pair]),
            float(self.positive[pair]),
            float(self.negative[pair]),
            float(self.reference_times[pair]),
        )

    @classmethod
    def empty(cls, pairs: int) -> EvidenceTable:
        """No interactions yet for any of `pairs` pairs."""
        return cls(np.zeros(pairs, dtype=np.int64), np.zeros(pairs), np.zeros(pairs), np.zeros(pairs))


@dataclass(frozen=True, slots=True)
class Prior:
    """What a relation is worth before (and beside) evidence: `pseudo_count` interactions of value `closeness`.

    pseudo_count k₀ ≥ 0 is measured in interactions; 0 switches the prior off. closeness lies in [0, 1].
    """

    closeness: float = 0.0
    pseudo_count: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.closeness <= 1:
            raise InvalidTrustParameters(f"a prior's closeness must lie in [0, 1], not {self.closeness}")
        if not 0 <= self.pseudo_count < math.inf:
            raise InvalidTrustParameters(f"a prior's pseudo_count must be finite and ≥ 0, not {self.pseudo_count}")


NO_PRIOR = Prior()
"""Direct trust exactly as the spec: nothing known before the first interaction."""


def add(evidence: Evidence, interaction: Interaction, parameters: TrustParameters) -> Evidence:
    """`evidence` with one more interaction, earlier or later than those it holds, in O(1)."""
    reference = max(evidence.reference_time, interaction.at) if evidence.count else interaction.at
    weight = interaction_weight(interaction, reference, parameters)
    aging = _aging(evidence, reference, parameters)
    return Evidence(
        count=evidence.count + 1,
        positive=evidence.positive * aging + (weight if interaction.positive else 0.0),
        negative=evidence.negative * aging + (0.0 if interaction.positive else weight),
        reference_time=reference,
    )


def merge(one: Evidence, other: Evidence, parameters: TrustParameters) -> Evidence:
    """Evidence of two disjoint parts of a pair's history taken together; order does not matter."""
    if not one.count or not other.count:
        return one if one.count else other
    reference = max(one.reference_time, other.reference_time)
    first, second = _aging(one, reference, parameters), _aging(other, reference, parameters)
    return Evidence(
        count=one.count + other.count,
        positive=one.positive * first + other.positive * second,
        negative=one.negative * first + other.negative * second,
        reference_time=reference,
    )


def direct_trust_at(evidence: Evidence, now: float, parameters: TrustParameters, prior: Prior = NO_PRIOR) -> float:
    """e at any `now` not before the latest interaction; equals `scores.direct_trust` of the history up to rounding.

    With a prior the pair counts as if it had also had k₀ interactions worth c each, which do not age:

        e = clamp01( (K·ē + k₀·c) / (K + k₀) ),   ē = (positive − ν·negative)/K before clamping

    so evidence takes over as K grows; k₀ = 0 gives eq (1). ē enters unclamped so that a bad history cancels the prior
    rather than merely diluting it. Unlike [SCFL], which has no prior.
    """
    if evidence.count and not now >= evidence.reference_time:
        raise InvalidInteraction(
            f"evidence reaches to {evidence.reference_time}, after {now}; replay the interactions up to {now} instead"
        )
    total = evidence.count + prior.pseudo_count
    if not total:
        return 0.0
    balance = _aging(evidence, now, parameters) * (evidence.positive - parameters.penalty * evidence.negative)
    return min(1.0, max(0.0, (balance + prior.pseudo_count * prior.closeness) / total))


def fold(
    table: EvidenceTable,
    pairs: npt.ArrayLike,
    positive: npt.ArrayLike,
    durations_seconds: npt.ArrayLike,
    at: npt.ArrayLike,
    parameters: TrustParameters,
) -> EvidenceTable:
    """`table` with a batch of interactions added: interaction k belongs to pair `pairs[k]`, an index into the table.

    O(batch + pairs) and free of Python loops; the same numbers as `add` one by one, up to rounding. Interactions may
    come in any order of time and pair. Refuses the whole batch with the index of the first bad interaction.
    """
    rows = np.asarray(pairs, dtype=np.int64)
    good = np.asarray(positive, dtype=np.bool_)
    durations, times = np.asarray(durations_seconds, dtype=np.float64), np.asarray(at, dtype=np.float64)
    _check_batch(len(table), rows, good, durations, times)
    newest = np.where(table.counts > 0, table.reference_times, -math.inf)
    np.maximum.at(newest, rows, times)
    reference = np.where(np.isfinite(newest), newest, 0.0)
    span = np.where(table.counts > 0, reference - table.reference_times, 0.0)
    aging = np.exp(-parameters.decay_rate * span)
    full = parameters.full_duration_seconds
    weights = np.minimum(durations, full) / full * np.exp(-parameters.decay_rate * (reference[rows] - times))
    size = len(table)
    return EvidenceTable(
        counts=table.counts + np.bincount(rows, minlength=size),
        positive=table.positive * aging + np.bincount(rows[good], weights[good], size),
        negative=table.negative * aging + np.bincount(rows[~good], weights[~good], size),
        reference_times=reference,
    )


def direct_trust_of(
    table: EvidenceTable,
    now: float,
    parameters: TrustParameters,
    closeness: Floats | float = 0.0,
    pseudo_counts: Floats | float = 0.0,
) -> Floats:
    """`direct_trust_at` for every pair of the table at once; priors as arrays of closeness and pseudo-count."""
    known = table.counts > 0
    late = known & ~(table.reference_times <= now)
    if late.any():
        pair = int(np.argmax(late))
        raise InvalidInteraction(
            f"pair {pair} has evidence up to {table.reference_times[pair]}, after {now}; replay the history"
        )
    aging = np.exp(-parameters.decay_rate * np.where(known, now - table.reference_times, 0.0))
    balance = aging * (table.positive - parameters.penalty * table.negative) + pseudo_counts * np.asarray(closeness)
    total = table.counts + np.asarray(pseudo_counts, dtype=np.float64)
    return np.clip(np.divide(balance, total, out=np.zeros(len(table)), where=total > 0), 0.0, 1.0)


def _aging(evidence: Evidence, now: float, parameters: TrustParameters) -> float:
    return math.exp(-parameters.decay_rate * (now - evidence.reference_time)) if evidence.count else 1.0


def _check_batch(size: int, pairs: Integers, positive: npt.NDArray[np.bool_], durations: Floats, times: Floats) -> None:
    if pairs.ndim != 1 or not pairs.shape == positive.shape == durations.shape == times.shape:
        raise InvalidInteraction(
            "a batch is four lists of one length, not of "
            f"{pairs.shape}, {positive.shape}, {durations.shape}, {times.shape}"
        )
    wrong = ~((durations >= 0) & (durations < math.inf)) | ~np.isfinite(times) | (pairs < 0) | (pairs >= size)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise InvalidInteraction(
            f"interaction {k} (pair {pairs[k]}, duration {durations[k]}, at {times[k]}) needs a pair of 0..{size - 1}, "
            "a finite duration ≥ 0 and a finite time"
        )
