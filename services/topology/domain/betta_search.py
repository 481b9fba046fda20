"""One run of BeTTa's SCS and NAS for a range of budgets at once, with exact pruning, compiled.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III-A 2)–4).

Budgets share a topology as long as they choose the same link. With k noisy devices only the budgets k and k + 1 can
choose differently from the rest.
"""

from __future__ import annotations

import numpy as np

from services.topology.domain.betta import REL
from services.topology.domain.betta_kernels import (
    add_link,
    mask_open,
    score_rows,
    time_unless_above,
    weigh_snapshot,
    weights,
)
from services.topology.domain.betta_state import (
    GAP_BOUND,
    HITTING,
    ITERATE,
    LINKS,
    NAS,
    NOISY,
    PHASE,
    SCS,
    TIME,
    Best,
    Problem,
    Run,
    compiled,
    threshold,
)
from services.topology.domain.mixing import Floats

EXHAUSTED, PRUNED, SPLIT = range(3)
PRUNE_EVERY = 16


@compiled
def advance(problem: Problem, run: Run, best: Best, low: int, high: int, spare: Floats) -> int:
    """Grows the topology for the budgets low..high until nothing is left, nothing can win, or they part ways."""
    since = 0
    score_rows(run, weights(problem, run))
    while True:
        if since % PRUNE_EVERY == 0 and hopeless(problem, run, best, high):
            return PRUNED
        since += 1
        i, j, score, parting = _choose(problem, run, low, high)
        if parting:
            return SPLIT
        if i < 0:
            return EXHAUSTED
        if run.counts[PHASE] == SCS:
            if _try_link(problem, run, best=best, budget=high, i=i, j=j, spare=spare):
                _record(run, i, j, score)
                weigh_snapshot(problem, run, best, low, True)
            else:
                run.counts[PHASE] = NAS
                score_rows(run, weights(problem, run))
        else:
            add_link(problem, run, high, i, j)
            _record(run, i, j, score)
            score_rows(run, weights(problem, run))
            weigh_snapshot(problem, run, best, low, False)


@compiled
def _record(run: Run, i: int, j: int, score: float) -> None:
    index = run.counts[LINKS]
    run.links[index, 0], run.links[index, 1] = i, j
    run.scores[index] = score
    run.steps[index] = run.counts[PHASE]
    run.counts[LINKS] += 1


@compiled
def _try_link(problem: Problem, run: Run, best: Best, budget: int, i: int, j: int, spare: Floats) -> bool:
    """SCS: adds (i, j) if P falls by more than REL, else leaves the run as it was."""
    spare[:] = run.inverse
    noisy_i, noisy_j, noisy = run.noisy[i], run.noisy[j], run.counts[NOISY]
    load_i, load_j = run.load[i], run.load[j]
    levels, fiedler = run.levels.copy(), run.fiedler.copy()
    add_link(problem, run, budget, i, j)
    score_rows(run, weights(problem, run))
    limit = run.levels[TIME] * (1.0 - REL)
    time = time_unless_above(problem, run, limit)
    if time < limit:
        run.levels[TIME] = time
        return True
    run.inverse[:] = spare
    run.used[i, j] = False
    run.used[j, i] = False
    run.degree[i] -= 1
    run.degree[j] -= 1
    run.noisy[i], run.noisy[j], run.counts[NOISY] = noisy_i, noisy_j, noisy
    run.load[i], run.load[j] = load_i, load_j
    for level in (ITERATE, HITTING, GAP_BOUND):
        run.levels[level] = levels[level]
    run.fiedler[:] = fiedler
    mask_open(problem, run, budget)
    return False


@compiled
def _new_noisy(problem: Problem, run: Run, i: int, j: int) -> int:
    """How many devices the link would make noisy."""
    if problem.trusted[i, j]:
        return 0
    return (0 if run.noisy[i] else 1) + (0 if run.noisy[j] else 1)


@compiled
def _choose(problem: Problem, run: Run, low: int, high: int) -> tuple[int, int, float, bool]:
    """The pair all budgets low..high add next with its score, or that they part; (−1, −1) when none is left."""
    count = len(run.degree)
    top = run.row_best.max()
    if not top > 0.0:
        return -1, -1, 0.0, False
    limit = top * (1.0 - REL)
    weight = weights(problem, run)
    left = low - run.counts[NOISY]
    chosen_i, chosen_j, chosen_score, costly = -1, -1, 0.0, False
    for i in range(count):
        if run.row_best[i] < limit * (1.0 - REL):
            continue
        for j in range(i + 1, count):
            score = _score(run, weight, i, j)
            if score < limit:
                continue
            if chosen_i < 0:
                chosen_i, chosen_j, chosen_score = i, j, score
            if left >= 2 or low == high:
                return chosen_i, chosen_j, count * chosen_score, False
            costly = costly or _new_noisy(problem, run, i, j) > left
    if costly:
        for allowed in range(left, 2):
            if run.counts[NOISY] + allowed >= high:
                break
            i, j = _choose_within(problem, run, weight, allowed)
            if i != chosen_i or j != chosen_j:
                return -1, -1, 0.0, True
    return chosen_i, chosen_j, count * chosen_score, False


@compiled
def _score(run: Run, weight: Floats, i: int, j: int) -> float:
    gap = max(run.inverse[i, i], run.inverse[j, j]) - run.inverse[i, j]
    return float(gap * run.open_times[i, j] * weight[j] * weight[i])


@compiled
def _choose_within(problem: Problem, run: Run, weight: Floats, allowed: int) -> tuple[int, int]:
    """The best pair that makes at most `allowed` devices noisy."""
    count = len(run.degree)
    top = 0.0
    for i in range(count):
        for j in range(i + 1, count):
            if run.open_times[i, j] > 0.0 and _new_noisy(problem, run, i, j) <= allowed:
                top = max(top, _score(run, weight, i, j))
    if top > 0.0:
        for i in range(count):
            for j in range(i + 1, count):
                close = _score(run, weight, i, j) >= top * (1.0 - REL)
                if close and _new_noisy(problem, run, i, j) <= allowed:
                    return i, j
    return -1, -1


@compiled
def hopeless(problem: Problem, run: Run, best: Best, high: int) -> bool:
    """Whether no topology this run can still reach, itself included, can win.

    H ≥ (V−1)/u and δ ≤ u·V/(V−1) with u = min_j (1 − a_jj). A device that stays without noise only ever gets trusted
    links and degrees only grow, which bounds its 1 − a_jj. Either the round time stays and slower links are out, or it
    rises to the next possible value.
    """
    iterate = run.levels[ITERATE]
    if not _all_above(problem, run, best=best, high=high, iterate=iterate, keep_iterate=True):
        return False
    later = _next_iterate(problem, run)
    return later == np.inf or _all_above(problem, run, best=best, high=high, iterate=later, keep_iterate=False)


@compiled
def _next_iterate(problem: Problem, run: Run) -> float:
    iterate = run.levels[ITERATE]
    if not problem.shared:
        place = np.searchsorted(problem.distinct_times, iterate, side="right")
        return float(problem.distinct_times[place]) if place < len(problem.distinct_times) else np.inf
    later = np.inf
    for i in range(len(run.degree)):
        for j in range(i + 1, len(run.degree)):
            if run.open_times[i, j] > 0.0:
                load = max(run.load[i], run.load[j]) + problem.link_seconds[i, j]
                if load > iterate:
                    later = min(later, load)
    return later


@compiled
def _all_above(problem: Problem, run: Run, best: Best, high: int, iterate: float, keep_iterate: bool) -> bool:
    """Whether P stays above the threshold for every number of devices that may still become noisy."""
    count = len(run.degree)
    leave = np.empty(count)
    quiet = 0
    for j in range(count):
        if not run.noisy[j]:
            leave[quiet] = _leaving_bound(problem, run, j, iterate, keep_iterate)
            quiet += 1
    leave = np.sort(leave[:quiet])
    noisy = run.counts[NOISY]
    for more in range(min(high, count) - noisy + 1):
        u = leave[more] if more < quiet else 0.5
        if u <= 0.0:
            continue
        noise = (noisy + more) / count * (count - 1) / (problem.epsilon * count * u)
        bound = iterate * (count - 1) / u * (1.0 + noise * noise)
        if bound < threshold(problem, best, noisy + more):
            return False
    return True


@compiled
def _leaving_bound(problem: Problem, run: Run, j: int, iterate: float, keep_iterate: bool) -> float:
    """An upper bound on 1 − a_jj of a device without noise: ½ max_x Σ over its x best links of 1/max(x, deg k)."""
    start, stop = problem.friend_start[j], problem.friend_start[j + 1]
    degrees = np.empty(stop - start)
    usable = 0
    for index in range(start, stop):
        k = problem.friends[index]
        if not run.used[j, k]:
            if run.degree[j] >= problem.cap or run.degree[k] >= problem.cap:
                continue
            if keep_iterate:
                if problem.shared:
                    if max(run.load[j], run.load[k]) + problem.link_seconds[j, k] > iterate:
                        continue
                elif problem.link_times[j, k] > iterate:
                    continue
        degrees[usable] = run.degree[k]
        usable += 1
    degrees = np.sort(degrees[:usable])
    inverse_sums = np.zeros(usable + 1)
    for index in range(usable):
        inverse_sums[index + 1] = inverse_sums[index] + 1.0 / degrees[index]
    most, small = 0.0, 0
    for x in range(max(run.degree[j], 1), usable + 1):
        while small < usable and degrees[small] <= x:
            small += 1
        head = min(small, x)
        most = max(most, head / x + inverse_sums[x] - inverse_sums[head])
    return 0.5 * min(most, 1.0)
