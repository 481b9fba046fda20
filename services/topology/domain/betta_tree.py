"""BeTTa's first step, compiled: the spanning tree every budget of noisy devices starts from, and its inverse.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III-A 1).
"""

from __future__ import annotations

import numpy as np

from services.topology.domain.betta_state import (
    CAS,
    DRIFT,
    GAP_BOUND,
    ITERATE,
    LINKS,
    NOISY,
    PHASE,
    SCS,
    STEPS,
    Ints,
    Problem,
    Run,
    compiled,
)
from services.topology.domain.mixing import Bools


@compiled
def spanning_tree(problem: Problem, budget: int) -> Ints:
    """CAS for one budget: the V−1 links in order.

    A pair's key (degree sum, untrusted, T, i, j) only grows and an inadmissible pair stays so. Hence the best pair of
    each row, once found, stays a lower bound: rows are searched again only when they come first with a stale key.
    """
    count = len(problem.batch_seconds)
    links = np.zeros((count - 1, 2), dtype=np.int64)
    degree = np.zeros(count, dtype=np.int64)
    component = np.arange(count)
    noisy = np.zeros(count, dtype=np.bool_)
    partner = np.full(count, -1, dtype=np.int64)
    degrees = np.full(count, -1, dtype=np.int64)
    for i in range(count):
        partner[i] = _best_partner(problem, i, degree=degree, component=component, noisy=noisy, budget=budget)
        if partner[i] >= 0:
            degrees[i] = 0
    for step in range(count - 1):
        while True:
            i = _first_row(problem, partner, degrees)
            j = partner[i]
            fresh = degree[i] + degree[j] == degrees[i]
            if fresh and component[i] != component[j] and _admissible(problem, noisy, budget, i, j):
                break
            partner[i] = _best_partner(problem, i, degree=degree, component=component, noisy=noisy, budget=budget)
            if partner[i] >= 0:
                degrees[i] = degree[i] + degree[partner[i]]
        links[step, 0], links[step, 1] = i, j
        degree[i] += 1
        degree[j] += 1
        old = component[j]
        for k in range(count):
            if component[k] == old:
                component[k] = component[i]
        if not problem.trusted[i, j]:
            noisy[i] = True
            noisy[j] = True
    return links


@compiled
def _admissible(problem: Problem, noisy: Bools, budget: int, i: int, j: int) -> bool:
    if problem.trusted[i, j]:
        return True
    new = 2
    if noisy[i]:
        new -= 1
    if noisy[j]:
        new -= 1
    return bool(noisy.sum() + new <= budget)


@compiled
def _best_partner(problem: Problem, i: int, degree: Ints, component: Ints, noisy: Bools, budget: int) -> int:
    result = -1
    total = noisy.sum()
    for j in range(i + 1, len(degree)):
        if component[i] == component[j] or problem.inverse_times[i, j] == 0.0:
            continue
        if not problem.trusted[i, j]:
            new = (0 if noisy[i] else 1) + (0 if noisy[j] else 1)
            if total + new > budget:
                continue
        if result < 0 or _before(problem, i, j=j, degrees=degree[j], k=i, m=result, other_degrees=degree[result]):
            result = j
    return result


@compiled
def _before(problem: Problem, i: int, j: int, degrees: int, k: int, m: int, other_degrees: int) -> bool:
    """Whether pair (i, j) has the smaller key than (k, m)."""
    if degrees != other_degrees:
        return degrees < other_degrees
    if problem.trusted[i, j] != problem.trusted[k, m]:
        return bool(problem.trusted[i, j])
    if problem.link_times[i, j] != problem.link_times[k, m]:
        return bool(problem.link_times[i, j] < problem.link_times[k, m])
    return i < k or (i == k and j < m)


@compiled
def _first_row(problem: Problem, partner: Ints, degrees: Ints) -> int:
    first = -1
    for i in range(len(partner)):
        if partner[i] < 0:
            continue
        if first < 0 or _before(
            problem, i, j=partner[i], degrees=degrees[i], k=first, m=partner[first], other_degrees=degrees[first]
        ):
            first = i
    return first


@compiled
def start_run(problem: Problem, run: Run, links: Ints) -> None:
    """Lays the tree into an empty run: degrees, noisy devices, loads and round time; the inverse comes later."""
    run.used[:] = False
    run.degree[:] = 0
    run.noisy[:] = False
    run.load[:] = problem.batch_seconds
    run.counts[LINKS] = len(links)
    run.counts[PHASE] = SCS
    run.counts[STEPS] = 0
    run.levels[ITERATE] = 0.0
    run.levels[GAP_BOUND] = np.inf
    run.levels[DRIFT] = 0.0
    for index in range(len(links)):
        i, j = links[index, 0], links[index, 1]
        run.links[index, 0], run.links[index, 1] = i, j
        run.scores[index] = problem.link_times[i, j]
        run.steps[index] = CAS
        run.used[i, j] = True
        run.used[j, i] = True
        run.degree[i] += 1
        run.degree[j] += 1
        run.load[i] += problem.link_seconds[i, j]
        run.load[j] += problem.link_seconds[i, j]
        run.levels[ITERATE] = max(run.levels[ITERATE], problem.link_times[i, j])
        if not problem.trusted[i, j]:
            run.noisy[i] = True
            run.noisy[j] = True
    if problem.shared:
        run.levels[ITERATE] = run.load.max()
    run.counts[NOISY] = run.noisy.sum()


@compiled
def tree_inverse(run: Run) -> None:
    """G of a tree in O(V²): resistances add along paths, and G is −½ R with rows and columns centred.

    R_uv = Σ 1/a over the path, since I − A is the Laplacian of the topology with conductances a_ij.
    """
    count = len(run.degree)
    resistance = np.zeros((count, count))
    order = np.zeros(count, dtype=np.int64)
    seen = np.zeros(count, dtype=np.bool_)
    seen[0] = True
    filled, done = 1, 0
    while done < filled:
        parent = order[done]
        done += 1
        for child in range(count):
            if not run.used[parent, child] or seen[child]:
                continue
            ohms = 2.0 * max(run.degree[parent], run.degree[child])
            for index in range(filled):
                u = order[index]
                resistance[u, child] = resistance[u, parent] + ohms
                resistance[child, u] = resistance[u, child]
            seen[child] = True
            order[filled] = child
            filled += 1
    means = resistance.sum(axis=1) / count
    overall = means.sum() / count
    for i in range(count):
        for j in range(i, count):
            run.inverse[i, j] = -0.5 * (resistance[i, j] - means[i] - means[j] + overall)
