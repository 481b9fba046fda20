"""Checks stability with separate payoff code; every report of stability comes from here.
[SCFL] §V-B, Definition 10; spec §3.4, A16, A17.

Unlike [SCFL], whose Theorem 3 claims that the algorithm always ends in a Nash-stable partition, only this check
establishes stability: the theorem is false. The check shares only the trust and noise of a pair with
the formation: it computes values and payoffs again from eqs (13)-(18) and skips clusters for other reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np

from services.topology.domain import coalition_value
from services.topology.domain.coalition import Game, Partition, partition_of

_TOLERANCE = 1e-9
_SLACK = 1e-6
_jit = numba.njit(cache=True, nogil=True)


@dataclass(frozen=True, slots=True)
class BlockingMove:
    """A device that gains by leaving `source` for `target` (its members; empty: alone)."""

    device: int
    source: tuple[int, ...]
    target: tuple[int, ...]
    gain: float


def blocking_move(
    game: Game, partition: Partition, *, consent: bool = True, exhaustive: bool = False
) -> BlockingMove | None:
    """The most profitable move left in `partition`, or None: then it is stable.

    A move is a feasible transfer to another cluster, or to being alone, that pays the mover more by over 1e-9 and, with
    `consent`, costs no member of the target more than 1e-9 (individual stability, which [SCFL] Definition 10 with
    eq (20) amounts to). Without `consent` the answer is about true Nash stability. Histories play no part. Equal gains:
    the smallest device, then the target with the smallest member, alone last. A stranger to its head gains infinitely.

    `exhaustive` evaluates every device with every cluster; otherwise clusters without a neighbour are skipped where
    no payoff in them can exceed the present one, with the same answer.
    """
    groups = partition_of(partition, game.size)
    members = np.array([device for group in groups for device in group], dtype=np.int64)
    starts = np.cumsum([0, *(len(group) for group in groups)]).astype(np.int64)
    while not (survey := _survey(game.tables, members, starts))[0]:
        game.supply_row()
    result: tuple[int, int, int, float] = (
        0,
        -1,
        -1,
        _TOLERANCE,
    )  # next device to look at, best mover so far, its target, its gain
    while (result := _scan(game.tables, members, starts, survey[1:], consent, exhaustive, result))[0] < game.size:
        game.supply_row()
    _, device, target, gain = result
    if device == -1:
        return None
    source = next(group for group in groups if device in group)
    return BlockingMove(int(device), source, groups[target] if target >= 0 else (), float(gain))


@_jit
def _survey(t, members, starts):  # type: ignore[no-untyped-def]  # numba types these
    """(complete, cluster of every device, what it receives, which clusters have a link inside, their surplus X)."""
    size, clusters = len(members), len(starts) - 1
    label = np.empty(size, np.int64)
    received = np.empty(size)
    linked = np.zeros(clusters, np.bool_)
    surplus = np.zeros(clusters)
    for c in range(clusters):
        group = members[starts[c] : starts[c + 1]]
        payoffs, head, _, touching = _divide(t, group)
        if head < 0:
            return False, label, received, linked, surplus
        linked[c] = touching
        for k in range(len(group)):
            label[group[k]] = c
            received[group[k]] = payoffs[k]
            surplus[c] += payoffs[k] - t.solo_value[group[k]]
        surplus[c] -= t.reward
    return True, label, received, linked, surplus


@_jit
def _scan(  # type: ignore[no-untyped-def]
    t, members, starts, survey, consent, exhaustive, survey_result
):
    """(next device, mover, target cluster or −1 for alone, gain) of the best move among devices from
    `survey_result[0]` on and the best so far.

    The next device is the number of devices when all have been looked at, else the one whose trust row is missing.
    """
    size, clusters = len(members), len(starts) - 1
    label, received, linked, surplus = survey
    start, mover, goal, best = survey_result
    quality, burden, lift = _sums(t, members, starts, linked)
    near = np.full(clusters, -1, np.int64)
    price, reward = t.price, t.reward
    for n in range(start, size):
        before = mover, goal, best
        for k in range(t.indptr[n], t.indptr[n + 1]):
            near[label[t.indices[k]]] = n
        # In a cluster without a neighbour, n's share q_n·r with r = λ_p − (Σ(λ_p s + λ_c) + ζ)/Q grows with every
        # quality where it is positive, so the largest qualities bound its payoff. And the members' shares sum to
        # Q_S·r, which must not fall below their surplus X now if they consent: r < X/Q_S with the largest Q_S refuses
        # n.
        low, high, own = t.far_quality[n], t.full_quality[n], t.price * t.solo_quality[n] + t.cost + t.reward
        alone, now, mine_at = t.solo_value[n], received[n], label[n]
        if t.forbid and _is_stranger(t, members[starts[mine_at] : starts[mine_at + 1]], n):
            now = -math.inf
        for c in range(clusters):
            if c == mine_at:
                continue
            if not exhaustive and near[c] != n:
                if linked[c]:
                    ratio = price - (burden[c] + own) / (quality[c] + low)
                    if consent and surplus[c] > 0.0 and ratio < surplus[c] / quality[c] - _SLACK:
                        continue
                    ceiling = alone + max(0.0, low * ratio)
                else:
                    total = quality[c] + low + max(lift[c], high - low)
                    ceiling = alone + max(0.0, high * (price - (burden[c] + own) / total)) + reward
                if ceiling <= now:
                    continue
            group = members[starts[c] : starts[c + 1]]
            if near[c] != n and t.component[group[0]] == t.component[n] and t.slot[n] < 0:
                t.missing[0] = n
                return n, before[0], before[1], before[2]
            own_payoff = _after_joining(t, group, n, received, now + best, consent)
            if math.isnan(own_payoff):
                return n, before[0], before[1], before[2]
            if own_payoff - now > best:
                mover, goal, best = n, c, own_payoff - now
        if starts[mine_at + 1] - starts[mine_at] > 1 and alone - now > best:
            mover, goal, best = n, -1, alone - now
    return size, mover, goal, best


@_jit
def _sums(t, members, starts, linked):  # type: ignore[no-untyped-def]
    """Per cluster, over its members: largest total quality, Σ(λ_p s + λ_c), and the largest lift q(0) − q_far.

    Joined by a device without a neighbour in it, a cluster with a link inside keeps its head there and its members have
    at most q(0) each; in one without, all but the head have at most q_far.
    """
    clusters = len(starts) - 1
    quality, burden, lift = np.zeros(clusters), np.zeros(clusters), np.zeros(clusters)
    for c in range(clusters):
        for m in members[starts[c] : starts[c + 1]]:
            quality[c] += t.full_quality[m] if linked[c] else t.far_quality[m]
            burden[c] += t.price * t.solo_quality[m] + t.cost
            lift[c] = max(lift[c], t.full_quality[m] - t.far_quality[m])
    return quality, burden, lift


@_jit
def _after_joining(t, group, n, received, floor, consent):  # type: ignore[no-untyped-def]
    """Payoff of n in `group` ∪ {n}; −∞ if infeasible, not above `floor` or, with `consent`, refused; NaN on a missing
    trust row.
    """
    joined = np.empty(len(group) + 1, np.int64)
    joined[:-1] = group
    joined[-1] = n
    if t.forbid and t.component[n] != t.component[group[0]]:
        return -math.inf
    after, head, feasible, _ = _divide(t, joined)
    if head < 0:
        return math.nan
    if (t.forbid and not feasible) or after[-1] <= floor:
        return -math.inf
    if consent:
        for k in range(len(group)):
            if after[k] < received[group[k]] - _TOLERANCE:
                return -math.inf
    return after[-1]


@_jit
def _is_stranger(t, group, n):  # type: ignore[no-untyped-def]
    """Whether n has no trust in the head of its cluster: only then can a member lie in another component."""
    for m in group:
        if t.component[m] != t.component[n]:
            return t.component[_central(t, group)[0]] != t.component[n]
    return False


@_jit
def _divide(t, group):  # type: ignore[no-untyped-def]
    """Payoffs of a cluster by eqs (13)-(18): (payoffs, head or −1 on a missing row, feasible, has a link inside)."""
    count = len(group)
    payoffs = np.zeros(count)
    alone = np.empty(count)
    for k in range(count):
        worst = t.loss_top[group[k]] / (t.loss_shift + math.exp(-t.loss_rate * t.noise_max)) + t.loss_floor
        alone[k] = t.price * (t.quality_offset - t.quality_slope * worst)
    if count == 1:
        return alone, group[0], True, False
    head, touching = _central(t, group)
    feasible = True
    if head < 0:
        return payoffs, -1, feasible, touching
    quality = np.empty(count)
    for k in range(count):
        alpha = coalition_value.trust(t, group[k], head)
        if math.isnan(alpha):
            return payoffs, -1, feasible, touching
        feasible = feasible and alpha > 0.0
        loss = (
            t.loss_top[group[k]] / (t.loss_shift + math.exp(-t.loss_rate * coalition_value.noise(t, alpha)))
            + t.loss_floor
        )
        quality[k] = t.quality_offset - t.quality_slope * loss
    value = t.price * quality.sum() - t.cost * count
    extra = value - alone.sum() - t.reward
    for k in range(count):
        payoffs[k] = quality[k] / quality.sum() * extra + alone[k]
        if group[k] == head:
            payoffs[k] += t.reward
    return payoffs, head, feasible, touching


@_jit
def _central(t, group):  # type: ignore[no-untyped-def]
    """(head, has a link inside) by spec §1.4; head −1 on a missing trust row."""
    degree = np.zeros(len(group), np.int64)
    for i in range(len(group)):
        for j in range(i):
            if coalition_value.closeness(t, group[i], group[j]) > 0.0:
                degree[i] += 1
                degree[j] += 1
    top = degree.max()
    head, most = -1, -1.0
    for i in range(len(group)):
        if degree[i] < top:
            continue
        total = 0.0
        if len(group) > 2 and (degree == top).sum() > 1:
            for j in range(len(group)):
                total += coalition_value.trust(t, group[i], group[j])
            if math.isnan(total):
                return -1, top > 0
            total = np.round(total, 9)
        if total > most or (total == most and group[i] < head):
            head, most = group[i], total
    return head, top > 0
