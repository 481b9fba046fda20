"""The compiled inner loops of cluster formation: trust of a pair, head, qualities and payoffs of a possible cluster.
[SCFL] eqs (9)-(20), spec §1.4, §2, §3.1.

The loops read `Tables` (the game: never changes) and write `State` (the present partition). `coalition.py` builds the
tables, `formation.py` decides who moves; nothing here knows about histories or turns.

Trust between devices one hop apart is in the graph, two hops apart comes from merging two rows; farther pairs come from
rows that the caller computes on demand. A loop that lacks such a row stops, names it in `tables.missing` and is
called again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TOLERANCE = 1e-9
"""Payoffs closer than this are equal (spec §0)."""
TRUST_TOLERANCE = 1e-12
_SUMS_ROUNDED_TO = 1e9
_SLACK = 1e-6

_jit = numba.njit(cache=True, nogil=True)
# Passing the tables to a compiled function counts some forty arrays in and out, which costs more than the small
# functions below take themselves: they are pasted into their callers instead. Loops name their arrays first for the
# same reason.
_paste = numba.njit(cache=True, nogil=True, inline="always")


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


class State(NamedTuple):
    """The present partition: clusters as linked lists, and what every device receives in them."""

    cluster: Integers  # of every device
    first: Integers  # first member of every cluster, −1 if the cluster is empty
    after: Integers  # next member, −1 at the end
    size: Integers
    head: Integers  # of every cluster
    links: Integers  # Υ(n, C(n))
    noise: Floats
    quality: Floats
    payoff: Floats
    stranger: npt.NDArray[np.bool_]
    value: Floats  # V of every cluster
    swing: Floats  # Δ of every cluster, see `far`
    bar: Floats  # surplus per quality a joiner from afar has to match, see `far`
    changed: Integers  # move after which the cluster last changed
    mark: Floats  # scratch: e(n, ·) of the device under evaluation, 0 elsewhere
    seen: Integers  # scratch: stamps of clusters already looked at
    found: Integers  # out: clusters worth moving to
    gains: Floats  # out: preference ρ of each


@_paste
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


@_jit
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


@_paste
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


@_paste
def quality(t, n, sigma):  # type: ignore[no-untyped-def]
    """q of device n at noise σ. eqs (13), (14)."""
    loss = t.loss_top[n] / (t.loss_shift + math.exp(-t.loss_rate * sigma)) + t.loss_floor
    return t.quality_offset - t.quality_slope * loss


@_jit
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


@_jit
def preference(t, s, n, c, members, links, qualities):  # type: ignore[no-untyped-def]
    """ψ_n(S ∪ {n}) if the cluster S numbered c would be feasible with n and every member consents, else −∞. eq (20).

    `mark` must hold e(n, ·). NaN when a far trust row is missing.
    """
    count, touching = 0, 0
    member = s.first[c]
    while member >= 0:
        members[count] = member
        links[count] = s.links[member]
        if s.mark[member] > 0.0:
            links[count] += 1
            touching += 1
        count += 1
        member = s.after[member]
    members[count], links[count] = n, touching
    head = elect(t, members, count + 1, links)
    if head < 0:
        return math.nan
    same = head == s.head[c] and count > 1
    total, surplus = 0.0, -t.reward
    for k in range(count + 1):
        m = members[k]
        if same and k < count:
            if t.forbid and s.stranger[m]:
                return -math.inf
            q = s.quality[m]
        else:
            alpha = trust(t, m, head)
            if math.isnan(alpha):
                return math.nan
            if t.forbid and alpha <= 0.0:
                return -math.inf
            q = quality(t, m, noise(t, alpha))
        qualities[k] = q
        total += q
        surplus += t.price * (q - t.solo_quality[m]) - t.cost
    ratio = surplus / total
    for k in range(count):
        m = members[k]
        mine = qualities[k] * ratio + t.solo_value[m] + (t.reward if m == head else 0.0)
        if mine < s.payoff[m] - TOLERANCE:
            return -math.inf
    return qualities[count] * ratio + t.solo_value[n] + (t.reward if n == head else 0.0)


@_jit
def settle(t, s, c, members, links):  # type: ignore[no-untyped-def]
    """Recomputes head, qualities, payoffs, value and swing of cluster c; False when a far trust row is missing."""
    count = 0
    member = s.first[c]
    while member >= 0:
        members[count] = member
        count += 1
        member = s.after[member]
    s.size[c] = count
    if count == 0:
        return True
    if count == 1:
        n = members[0]
        s.head[c], s.links[n], s.stranger[n], s.noise[n] = n, 0, False, t.noise_max
        s.quality[n], s.payoff[n], s.value[c] = t.solo_quality[n], t.solo_value[n], t.solo_value[n]
        return True
    top = 0
    for k in range(count):
        links[k] = 0
        for j in range(t.indptr[members[k]], t.indptr[members[k] + 1]):
            if s.cluster[t.indices[j]] == c:
                links[k] += 1
        top = max(top, links[k])
    head = elect(t, members, count, links)
    if head < 0:
        return False
    total = _qualities(t, s, members, count, head)
    if math.isnan(total):
        return False
    value = t.price * total - t.cost * count
    solo, swing = 0.0, 0.0
    for k in range(count):
        solo += t.solo_value[members[k]]
        if links[k] == top and members[k] != head:
            other = _total_quality(t, members, count, members[k])
            if math.isnan(other):
                return False
            swing = max(swing, t.price * (other - total))
    ratio = (value - solo - t.reward) / total
    for k in range(count):
        m = members[k]
        s.links[m] = links[k]
        s.payoff[m] = s.quality[m] * ratio + t.solo_value[m] + (t.reward if m == head else 0.0)
    s.head[c], s.value[c], s.swing[c] = head, value, swing
    s.bar[c] = (value - solo - t.reward) / (total + swing / t.price) if ratio > 0.0 else -math.inf
    return True


@_jit
def _qualities(t, s, members, count, head):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(count):
        alpha = trust(t, members[k], head)
        if math.isnan(alpha):
            return math.nan
        s.stranger[members[k]] = alpha <= 0.0
        s.noise[members[k]] = noise(t, alpha)
        s.quality[members[k]] = quality(t, members[k], s.noise[members[k]])
        total += s.quality[members[k]]
    return total


@_jit
def _total_quality(t, members, count, head):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(count):
        alpha = trust(t, members[k], head)
        if math.isnan(alpha):
            return math.nan
        total += quality(t, members[k], noise(t, alpha))
    return total


@_jit
def move(s, n, c):  # type: ignore[no-untyped-def]
    """Relinks device n from its cluster into cluster c (which may be empty); `settle` both afterwards."""
    old = s.cluster[n]
    if s.first[old] == n:
        s.first[old] = s.after[n]
    else:
        before = s.first[old]
        while s.after[before] != n:
            before = s.after[before]
        s.after[before] = s.after[n]
    s.after[n] = s.first[c]
    s.first[c] = n
    s.cluster[n] = c


@_jit
def near(t, s, n, since, floor, members, links, qualities):  # type: ignore[no-untyped-def]
    """Clusters that hold a neighbour of n and offer it more than `floor`: fills `found` and `gains`, returns how many.

    Only clusters that changed after move `since`. Leaves `mark` and `seen` set for `far`; −1 when a far trust row is
    missing.
    """
    count = 0
    for k in range(t.indptr[n], t.indptr[n + 1]):
        s.mark[t.indices[k]] = t.closeness[k]
    s.seen[s.cluster[n]] = n
    for k in range(t.indptr[n], t.indptr[n + 1]):
        c = s.cluster[t.indices[k]]
        if s.seen[c] == n:
            continue
        s.seen[c] = n
        if s.changed[c] <= since:
            continue
        rho = preference(t, s, n, c, members, links, qualities)
        if math.isnan(rho):
            return -1
        if rho > floor:
            s.found[count], s.gains[count] = c, rho
            count += 1
    return count


# Why a cluster S without a neighbour of n may be skipped. Write T = S ∪ {n}; α(n, ·) ≤ 1 − ω on S, so n's quality as a
# member is at most q_far.
#
# S = {l} or without a link inside: the head is at σ = 0, all others at most at q_far. n's share q_n·X/Q (+ ζ if head)
# with X = λ_p Q − A, A = Σ_T(λ_p s + λ_c) + ζ, grows in every quality where X ≥ 0 and is negative elsewhere, so the
# largest qualities, or 0, bound it. In a pair the head is the smaller id; otherwise anyone may be, so n counts at q(0)
# and Q with all at q_far and the best lifted to σ = 0.
#
# S with a link inside: n has Υ = 0 and cannot become head; links inside S stay as they are, so the new head is one of
# those that tie for the largest Υ in S. Let the swing Δ ≥ 0 be the most V(S) gains by handing the head to one of them.
# (i) Summing the consents over S, V(T) − ψ_n(T) ≥ V(S) − |S|·TOL, hence
#         ψ_n(T) ≤ V(T) − V(S) + |S|·TOL ≤ Δ + λ_p q_far − λ_c + |S|·TOL.
# (ii) With ψ_n(T) = V_n + q_n X'/Q' the same sum reads X'·Q_S/Q' ≥ X − |S|·TOL, where X is the surplus of S now,
#      X' ≤ X + Δ + g_n that of T, g_n = λ_p(q_n − s_n) − λ_c, and Q_S ≤ Q + Δ/λ_p the members' quality in T. For X > 0
#         (Δ + g_n)/q_n ≥ X/(Q + Δ/λ_p) =: bar(S)
#      follows: trust must beat the cluster's break-even. The left side is λ_p − (λ_p s_n + λ_c − Δ)/q_n, which grows in
#      q_n while Δ < λ_p s_n + λ_c, so q_far decides. The tolerances add at most |S|·TOL·(1/Q + 1/q_n), below the slack.


@_jit
def far(t, s, n, since, count, floor, ceiling, pruned, members, links, qualities):  # type: ignore[no-untyped-def]
    """Adds to the `count` clusters `near` found those without a neighbour of n that offer more than `floor`.

    With `pruned`, clusters that cannot admit n, or whose offer stays below `ceiling`, are not evaluated: they can
    neither beat nor tie the choice n already has. Device n's own far row is asked for first, when any needs it.
    """
    c = _next_far(t, s, n, -1, since, ceiling, pruned)
    while c >= 0:
        if s.seen[c] != n:
            if t.slot[n] < 0:
                t.missing[0] = n
                return -1
            rho = preference(t, s, n, c, members, links, qualities)
            if math.isnan(rho):
                return -1
            if rho > floor:
                s.found[count], s.gains[count] = c, rho
                count += 1
        c = _next_far(t, s, n, c, since, ceiling, pruned)
    return count


@_jit
def _next_far(t, s, n, c, since, ceiling, pruned):  # type: ignore[no-untyped-def]
    """The first cluster after c, changed after move `since`, that (having no neighbour of n) could admit n and offer it
    `ceiling`; −1 if there is none.
    """
    first, size, swing, bar, changed, head, inner = s.first, s.size, s.swing, s.bar, s.changed, s.head, s.links
    component, forbid, price, cost, reward = t.component, t.forbid, t.price, t.cost, t.reward
    solo_quality, full_quality, far_quality = t.solo_quality, t.full_quality, t.far_quality
    home, burden, alone = component[n], price * solo_quality[n] + cost, t.solo_value[n]
    full, low = full_quality[n], far_quality[n]
    for other in range(c + 1, len(first)):
        one = first[other]
        if one < 0 or changed[other] <= since or (forbid and component[one] != home):
            continue
        if not pruned:
            return other
        if size[other] == 1:
            mine, theirs = (full, far_quality[one]) if n < one else (low, full_quality[one])
            both = burden + price * solo_quality[one] + cost + reward
            share = max(0.0, mine * (price - both / (mine + theirs))) + (reward if n < one else 0.0)
            if alone + share >= ceiling:
                return other
        elif inner[head[other]] > 0:
            delta = swing[other]
            pays = price * low - cost + delta + size[other] * TOLERANCE >= ceiling
            if pays and (delta >= burden or price - (burden - delta) / low >= bar[other] - _SLACK):
                return other
        elif alone + _linkless_share(t, s, n, other) + reward >= ceiling:
            return other
    return -1


@_jit
def restless(t, s, start, content, latest, pruned):  # type: ignore[no-untyped-def]
    """The first device from `start` on that may have an option, or the number of devices.

    A device that wanted nothing at move `content[n]` has none now unless its own cluster, a neighbour's, or another
    within reach changed since; `latest` is the number of the last move.
    """
    changed, cluster, indptr, indices = s.changed, s.cluster, t.indptr, t.indices
    for n in range(start, len(cluster)):
        since = content[n]
        if since < 0 or changed[cluster[n]] > since:
            return n
        if since == latest:
            continue
        for k in range(indptr[n], indptr[n + 1]):
            if changed[cluster[indices[k]]] > since:
                return n
        if _next_far(t, s, n, -1, since, s.payoff[n], pruned) >= 0:
            return n
    return len(cluster)


@_jit
def _linkless_share(t, s, n, c):  # type: ignore[no-untyped-def]
    total, lift = t.far_quality[n], t.full_quality[n] - t.far_quality[n]
    burden = t.price * t.solo_quality[n] + t.cost + t.reward
    member = s.first[c]
    while member >= 0:
        total += t.far_quality[member]
        lift = max(lift, t.full_quality[member] - t.far_quality[member])
        burden += t.price * t.solo_quality[member] + t.cost
        member = s.after[member]
    return max(0.0, t.full_quality[n] * (t.price - burden / (total + lift)))


@_jit
def clear(t, s, n):  # type: ignore[no-untyped-def]
    """Takes n's marks and stamps back, so that the next device starts clean."""
    s.seen[s.cluster[n]] = -1
    for k in range(t.indptr[n], t.indptr[n + 1]):
        s.mark[t.indices[k]] = 0.0
        s.seen[s.cluster[t.indices[k]]] = -1


@_jit
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
