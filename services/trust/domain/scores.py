"""How far two devices trust each other: directly, through others, and combined. [SCFL] "Social-Aware Clustered
Federated Learning", §III-B, eqs (1)-(3); exact rules in spec §1.

Direct trust e comes from the pair's own interactions, indirect trust τ from the best of the shortest paths in the
social graph, combined trust is α = ω e + (1−ω) τ. All three are symmetric and lie in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from services.kit.errors import InvalidInput
from services.trust.domain import search
from services.trust.domain.graph import (
    Floats,
    Integers,
    Paths,
    TrustGraph,
    check_direct,
)
from services.trust.domain.parameters import TrustParameters


class InvalidInteraction(InvalidInput):
    """An interaction with a negative or non-finite duration, or later than the requested moment."""


@dataclass(frozen=True, slots=True)
class Interaction:
    """One interaction of two devices: good or bad, duration (seconds ≥ 0), time (seconds, any epoch)."""

    positive: bool
    duration_seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class TrustPath:
    """The best of the shortest paths between two devices: the devices on it, each hop's e, and their product τ."""

    devices: tuple[int, ...]
    hops: tuple[float, ...]
    indirect: float


@dataclass(frozen=True, slots=True)
class TrustMatrices:
    """Direct, indirect and combined trust among the same devices; diagonals 0, 0 and 1."""

    direct: Floats
    indirect: Floats
    trust: Floats


def direct_trust(interactions: Iterable[Interaction], now: float, parameters: TrustParameters) -> float:
    """e(n, m) from the whole history of a pair: the reference, O(history). [SCFL] eq (1) with spec A1, A2.

        e = clamp01( [ Σ_pos w − ν Σ_neg w ] / K ),   w = min(λ, D)/D · exp(−ξ(now − t_b)),   e = 0 if K = 0

    Unlike [SCFL], which sets λ := 1 above D and then divides by D, the clipped duration is normalised: the printed rule
    is consistent only for D = 1. K counts every interaction undecayed, so e falls to 0 when nothing new happens.
    """
    terms, count = [], 0
    for interaction in interactions:
        weight = interaction_weight(interaction, now, parameters)
        terms.append(weight if interaction.positive else -parameters.penalty * weight)
        count += 1
    return min(1.0, max(0.0, math.fsum(terms) / count)) if count else 0.0


def interaction_weight(interaction: Interaction, now: float, parameters: TrustParameters) -> float:
    """min(λ, D)/D · exp(−ξ(now − t_b)) of one interaction, in [0, 1]."""
    duration, at = interaction.duration_seconds, interaction.at
    if not 0 <= duration < math.inf:
        raise InvalidInteraction(f"duration must be finite and ≥ 0, got {duration}")
    if not 0 <= now - at < math.inf:
        raise InvalidInteraction(f"an interaction at {at} is later than the requested moment {now}, or not finite")
    full = parameters.full_duration_seconds
    return min(duration, full) / full * math.exp(-parameters.decay_rate * (now - at))


def indirect_trust(graph: TrustGraph, source: int) -> Floats:
    """τ from one device to all others, in O(devices + ties); 0 without a path and at the source itself.

    τ is the product of e along a path with the fewest edges; among equally short paths the largest product (spec A3).
    A longer path never counts, even if its product is larger. [SCFL] eq (2).

    From the other end the same product is multiplied in the opposite order, so τ(n, m) and τ(m, n) of two calls may
    differ in the last bit; `trust_between` and the matrices always multiply from the smaller index.
    """
    graph.check(source)
    _, products, _ = search.search_from(graph, source)
    products[source] = 0.0
    return products


def trust_from(graph: TrustGraph, source: int, direct_weight: float) -> Floats:
    """α from one device to all devices, itself included (1). [SCFL] eq (3)."""
    row = combine(direct_row(graph, source), indirect_trust(graph, source), direct_weight)
    row[source] = 1.0
    return row


def trust_between(graph: TrustGraph, a: int, b: int, direct_weight: float) -> float:
    """α(a, b), the same bits in either order; 1 for a device with itself."""
    graph.check(a, b)
    if a == b:
        return 1.0
    rows = search.best_products(graph, _indices([min(a, b)]), _indices([max(a, b)]))
    return float(combine(np.array([graph.direct(a, b)]), rows[0], direct_weight)[0])


def trust_rows(graph: TrustGraph, participants: Sequence[int] | Integers, direct_weight: float) -> TrustMatrices:
    """Trust among some devices of a large graph, in the order given; paths may lead through all others.

    One search per participant; memory O(participants² + devices). Participants must be distinct.
    """
    chosen = _indices(participants)
    graph.check(*chosen.tolist())
    if len(np.unique(chosen)) < len(chosen):
        raise InvalidInput(f"participants must be distinct, got {len(chosen)} with repetitions")
    indirect = search.best_products(graph, chosen, chosen)
    np.fill_diagonal(indirect, 0.0)
    # The smaller index's row is authoritative: products multiplied in the opposite order may differ in the last bit.
    indirect = np.where(chosen[:, None] < chosen[None, :], indirect, indirect.T)
    direct = np.stack([direct_row(graph, int(device))[chosen] for device in chosen]) if len(chosen) else indirect
    trust = combine(direct, indirect, direct_weight)
    np.fill_diagonal(trust, 1.0)
    return TrustMatrices(direct, indirect, trust)


def trust_matrix(direct: npt.ArrayLike, direct_weight: float) -> TrustMatrices:
    """Trust among n devices from their symmetric n×n matrix of direct trust; its diagonal is ignored."""
    graph = TrustGraph.from_dense(check_direct(direct))
    return trust_rows(graph, np.arange(graph.size), direct_weight)


def direct_row(graph: TrustGraph, source: int) -> Floats:
    """e from one device to all devices; 0 for strangers and itself."""
    row = np.zeros(graph.size)
    others, values = graph.neighbours(source)
    row[others] = values
    return row


def combine(direct: Floats, indirect: Floats, direct_weight: float) -> Floats:
    """α = ω e + (1−ω) τ, elementwise, written so that α = e exactly wherever τ = e (neighbours). [SCFL] eq (3)."""
    if not 0 <= direct_weight <= 1:
        raise InvalidInput(f"direct_weight must lie in [0, 1], got {direct_weight}")
    return direct + (1.0 - direct_weight) * (indirect - direct)


def best_path(graph: TrustGraph, a: int, b: int) -> TrustPath | None:
    """Return the path behind τ(a, b), from a to b, or None without one (a = b, or not connected).

    Among equally short paths of equal product, the one whose devices nearest the larger index are smallest.
    """
    graph.check(a, b)
    low, high = min(a, b), max(a, b)
    hops, products, parents = search.search_from(graph, low)
    if low == high or hops[high] < 0:
        return None
    devices = [high]
    if graph.paths is Paths.BEST:
        devices = _back_through_three(graph, low, high)
    while devices[-1] != low:
        devices.append(int(parents[devices[-1]]))
    if devices[0] != a:
        devices.reverse()
    steps = tuple(graph.direct(left, right) for left, right in pairwise(devices))
    return TrustPath(tuple(devices), steps, float(products[high]))


def _back_through_three(graph: TrustGraph, low: int, high: int) -> list[int]:
    """Return the devices from `high` to `low` on a best path of up to three ties; the shortest of equally good ones."""
    best = [np.zeros(graph.size)]
    best[0][low] = 1.0
    for _ in range(search.MOST_TIES - 1):
        rows = np.repeat(np.arange(graph.size), graph.degrees)
        passed = best[-1].copy()
        np.maximum.at(passed, graph.indices, best[-1][rows] * graph.values)
        best.append(passed)
    devices = [high]
    for before in reversed(best):
        others, values = graph.neighbours(devices[-1])
        products = before[others] * values
        if devices[-1] == low or before[devices[-1]] >= products.max(initial=0.0):
            continue  # equally good with one tie less
        devices.append(int(others[np.argmax(products)]))
    return devices


def _indices(devices: Sequence[int] | Integers) -> Integers:
    return np.asarray(devices, dtype=np.int64)
