"""The compiled inner loops of cluster formation: who would gain by moving where, given the present partition.
[SCFL] eqs (15)-(20), spec §3.1.

The loops read `Tables` (the game: never changes) and write `State` (the present partition). `formation.py` decides who
moves; nothing here knows about histories or turns. A loop that lacks a row of trust stops as in `coalition_value`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from services.topology.domain.coalition_value import (
    TOLERANCE,
    Floats,
    Integers,
    elect,
    jit,
    noise,
    quality,
    trust,
)

_SLACK = 1e-6


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
    targets: Integers  # out: clusters worth moving to
    gains: Floats  # out: preference ρ of each


@jit
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
        own = qualities[k] * ratio + t.solo_value[m] + (t.reward if m == head else 0.0)
        if own < s.payoff[m] - TOLERANCE:
            return -math.inf
    return qualities[count] * ratio + t.solo_value[n] + (t.reward if n == head else 0.0)


@jit
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


@jit
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


@jit
def _total_quality(t, members, count, head):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(count):
        alpha = trust(t, members[k], head)
        if math.isnan(alpha):
            return math.nan
        total += quality(t, members[k], noise(t, alpha))
    return total


@jit
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


@jit
def near(t, s, n, since, floor, members, links, qualities):  # type: ignore[no-untyped-def]
    """Clusters that hold a neighbour of n and offer it over `floor`: fills `targets` and `gains`, returns how many.

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
            s.targets[count], s.gains[count] = c, rho
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


@jit
def far(t, s, n, since, count, floor, ceiling, pruned, members, links, qualities):  # type: ignore[no-untyped-def]
    """Adds to the `count` clusters `near` targets those without a neighbour of n that offer more than `floor`.

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
                s.targets[count], s.gains[count] = c, rho
                count += 1
        c = _next_far(t, s, n, c, since, ceiling, pruned)
    return count


@jit
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
            own, theirs = (full, far_quality[one]) if n < one else (low, full_quality[one])
            both = burden + price * solo_quality[one] + cost + reward
            share = max(0.0, own * (price - both / (own + theirs))) + (reward if n < one else 0.0)
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


@jit
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


@jit
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


@jit
def clear(t, s, n):  # type: ignore[no-untyped-def]
    """Takes n's marks and stamps back, so that the next device starts clean."""
    s.seen[s.cluster[n]] = -1
    for k in range(t.indptr[n], t.indptr[n + 1]):
        s.mark[t.indices[k]] = 0.0
        s.seen[s.cluster[t.indices[k]]] = -1
