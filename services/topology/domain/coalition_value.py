"""What one cluster is worth, compiled: trust of a pair, noise, head, qualities and payoffs of its members.
[SCFL] eqs (3)-(20), spec §1.4, §2.

The loops read `Tables`, the game, which `coalition.py` builds and which never changes.

Trust between devices one hop apart is in the graph, two hops apart comes from merging two rows; farther pairs come from
rows that the caller computes on demand. A loop that lacks such a row stops, names it in `tables.missing` and is
called again.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from services.kit.runtime.compiled import forget_stale

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TOLERANCE = 1e-9
"""Payoffs closer than this are equal (spec §0)."""
TRUST_TOLERANCE = 1e-12
_SUMS_ROUNDED_TO = 1e9

forget_stale(Path(__file__).parent)
jit = numba.njit(cache=True, nogil=True)
# Passing the tables to a compiled function counts some forty arrays in and out, which costs more than the small
# functions below take themselves: they are pasted into their callers instead. Loops name their arrays first for the
# same reason.
paste = numba.njit(cache=True, nogil=True, inline="always")


class Tables(NamedTuple):
    """The game: social graph, far trust rows, noise curve and payoff constants."""

    indptr: Integers
    indices: Integers
    closeness: Floats
    component: Integers  # devices with different labels have trust 0
    far_weight: float  # 1 − ω
    rows: Floats  # cached rows of α, `slot[n]` is the row of device n or −1
    slot: Integers
    missing: Integers  # [device whose row is needed, or −1]
    threshold: float  # α_th
    noise_max: float  # σ_max
    budget_scale: float  # θ1
    budget_shift: float  # θ2
    paper_multiplier: float  # σ·ε of eq (9)
    curve_low: float  # ln ε of the first knot of the exact calibration
    curve_step: float
    curve: Floats  # cubic pieces of σ(ln ε), 4×pieces; no pieces: eq (9)
    loss_top: Floats  # μ1 e^{−μ2 γ_n}
    loss_shift: float  # μ3
    loss_rate: float  # μ4
    loss_floor: float  # μ5
    quality_offset: float  # κ2
    quality_slope: float  # κ1
    price: float  # λ_p
    cost: float  # λ_c
    reward: float  # ζ
    forbid: bool  # strangers make a cluster infeasible
    solo_quality: Floats  # q(σ_max, γ_n)
    solo_value: Floats  # V({n})
    full_quality: Floats  # q(0, γ_n)
    far_quality: Floats  # q at the largest trust of a device that is not a neighbour


@paste
def closeness(t, a, b):  # type: ignore[no-untyped-def]  # numba types these; Any annotations would say nothing
    """e(a, b) by binary search in the shorter row."""
    if t.indptr[a + 1] - t.indptr[a] > t.indptr[b + 1] - t.indptr[b]:
        a, b = b, a
    low, end, indices = t.indptr[a], t.indptr[a + 1], t.indices
    high = end
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < b:
            low = middle + 1
        else:
            high = middle
    if low < end and indices[low] == b:
        return t.closeness[low]
    return 0.0


@jit
def trust(t, a, b):  # type: ignore[no-untyped-def]
    """α(a, b), or NaN with `missing` set when the pair is three or more hops apart and no row is cached. eq (3)."""
    if a == b:
        return 1.0
    if t.component[a] != t.component[b]:
        return 0.0
    a, b = min(a, b), max(a, b)
    if t.slot[a] >= 0:
        return t.rows[t.slot[a], b]
    if t.slot[b] >= 0:
        return t.rows[t.slot[b], a]
    e = closeness(t, a, b)
    if e > 0.0:
        return e
    i, j, best = t.indptr[a], t.indptr[b], 0.0
    end_i, end_j, indices, values = t.indptr[a + 1], t.indptr[b + 1], t.indices, t.closeness
    while i < end_i and j < end_j:
        if indices[i] < indices[j]:
            i += 1
        elif indices[i] > indices[j]:
            j += 1
        else:
            best = max(best, values[i] * values[j])
            i += 1
            j += 1
    if best > 0.0:
        return t.far_weight * best
    t.missing[0] = a
    return math.nan


@paste
def noise(t, alpha):  # type: ignore[no-untyped-def]
    """σ of a member with trust `alpha` to its head. eqs (9), (11), spec A6, A18."""
    if alpha >= t.threshold - TRUST_TOLERANCE:
        return 0.0
    if alpha <= 0.0:
        return t.noise_max
    epsilon = t.budget_scale * alpha / (alpha + t.budget_shift)
    pieces = t.curve.shape[1]
    if pieces == 0:
        return min(t.noise_max, t.paper_multiplier / epsilon)
    place = (math.log(epsilon) - t.curve_low) / t.curve_step
    if place <= 0.0:
        return t.noise_max
    k = min(int(place), pieces - 1)
    x = (place - k) * t.curve_step
    sigma = ((t.curve[0, k] * x + t.curve[1, k]) * x + t.curve[2, k]) * x + t.curve[3, k]
    return min(t.noise_max, sigma)


@paste
def quality(t, n, sigma):  # type: ignore[no-untyped-def]
    """q of device n at noise σ. eqs (13), (14)."""
    loss = t.loss_top[n] / (t.loss_shift + math.exp(-t.loss_rate * sigma)) + t.loss_floor
    return t.quality_offset - t.quality_slope * loss


@jit
def elect(t, members, count, links):  # type: ignore[no-untyped-def]
    """Head: largest Υ, then largest Σα rounded to 1e-9, then smallest id; −1 when a far trust row is missing."""
    top = 0
    for k in range(count):
        top = max(top, links[k])
    tied = 0
    head = -1
    for k in range(count):
        if links[k] == top:
            tied += 1
            head = members[k]
    if tied == 1:
        return head
    if count == 2:  # α is symmetric, so the sums are equal
        return min(members[0], members[1])
    head, best = -1, -1.0
    for k in range(count):
        if links[k] != top:
            continue
        total = 0.0
        for j in range(count):
            total += trust(t, members[k], members[j])
        if math.isnan(total):
            return -1
        total = math.floor(total * _SUMS_ROUNDED_TO + 0.5)
        if total > best or (total == best and members[k] < head):
            head, best = members[k], total
    return head


@jit
def appraise(t, members, sigmas, qualities, payoffs, stranger):  # type: ignore[no-untyped-def]
    """Fills noise, quality, payoff and strangeness of a cluster by itself; returns its head, −1 on a missing row."""
    count = len(members)
    if count == 1:
        n = members[0]
        sigmas[0], qualities[0], payoffs[0] = t.noise_max, t.solo_quality[n], t.solo_value[n]
        return n
    links = np.zeros(count, np.int64)
    for k in range(count):
        for j in range(count):
            if j != k and closeness(t, members[k], members[j]) > 0.0:
                links[k] += 1
    head = elect(t, members, count, links)
    if head < 0:
        return -1
    surplus = -t.reward
    for k in range(count):
        alpha = trust(t, members[k], head)
        if math.isnan(alpha):
            return -1
        stranger[k] = alpha <= 0.0
        sigmas[k] = noise(t, alpha)
        qualities[k] = quality(t, members[k], sigmas[k])
        surplus += t.price * (qualities[k] - t.solo_quality[members[k]]) - t.cost
    ratio = surplus / qualities.sum()
    for k in range(count):
        m = members[k]
        payoffs[k] = qualities[k] * ratio + t.solo_value[m] + (t.reward if m == head else 0.0)
    return head
