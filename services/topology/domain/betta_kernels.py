"""Adding a link to a topology and knowing at once how it mixes: low-rank updates of (I − A)⁺, compiled.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, (4), (12), (14) and (15).

Adding (i, j) changes the weight of the new link and of the links (i, k) with deg k ≤ deg i and (j, k) with
deg k ≤ deg j. With B their incidence columns and c the changes of weight,
G ← G − Uᵀ(diag(1/c) + BᵀGB)⁻¹U, U = BᵀG (Woodbury; it holds for the pseudoinverse as every column sums to 0).
"""

from __future__ import annotations

import numpy as np

from services.topology.domain.betta_state import (
    BEST_BUDGET,
    BEST_LINKS,
    BEST_RUN,
    DRIFT,
    GAP_BOUND,
    HITTING,
    ITERATE,
    LINKS,
    NAS,
    NOISY,
    PHASE,
    RUN_ID,
    STEPS,
    TIME,
    WEIGHED,
    Best,
    Ints,
    Problem,
    Run,
    compiled,
    larger,
    threshold,
)
from services.topology.domain.mixing import Floats

CHECK_EVERY = 64
DRIFT_PER_DEVICE = 1e-11
KRYLOV = 60
EIGEN_TOLERANCE = 1e-11
BLAS_FROM, BLOCK = 12, 64
"""Rank from which a library's matrix product is faster than loops, and rows it takes at a time."""


@compiled
def weights(problem: Problem, run: Run) -> Floats:
    """1/deg_s for SCS (14), 1/deg_c for NAS (15)."""
    if run.counts[PHASE] == NAS:
        return 1.0 / run.degree
    return problem.social_weight


@compiled
def mask_open(problem: Problem, run: Run, budget: int) -> None:
    """Finds the pairs that may still be added under `budget`: unused, possible, below the cap, admissible."""
    count = len(run.degree)
    left = budget - run.counts[NOISY]
    for i in range(count):
        new_i = 0 if run.noisy[i] else 1
        full = run.degree[i] >= problem.cap
        for j in range(i + 1, count):
            new = new_i + (0 if run.noisy[j] else 1)
            barred = run.used[i, j] or full or run.degree[j] >= problem.cap
            if barred or (new > left and not problem.trusted[i, j]):
                run.open_times[i, j] = 0.0
            else:
                run.open_times[i, j] = problem.inverse_times[i, j]


@compiled
def score_rows(run: Run, weight: Floats) -> None:
    """The largest score of each row over later columns, and H; scores lack the factor V."""
    count = len(run.degree)
    diagonal = np.diag(run.inverse).copy()
    farthest = 0.0
    for i in range(count):
        row, open_row = run.inverse[i, i + 1 :], run.open_times[i, i + 1 :]
        far, top = _score_row(row, open_row, diagonal[i + 1 :], weight[i + 1 :], diagonal[i])
        farthest = max(farthest, far)
        run.row_best[i] = top * weight[i]
    run.levels[HITTING] = count * farthest


# Inner loops over slices from 0, in separate functions, are vectorised; the same loops inline are not.
@compiled
def _score_row(row: Floats, open_row: Floats, diagonal: Floats, weight: Floats, own: float) -> tuple[float, float]:
    far, top = 0.0, 0.0
    for j in range(len(row)):
        gap = larger(own, diagonal[j]) - row[j]
        far = larger(far, gap)
        top = larger(top, gap * open_row[j] * weight[j])
    return far, top


@compiled
def fresh_inverse(run: Run) -> None:
    """G from scratch; O(V³)."""
    count = len(run.degree)
    matrix = np.full((count, count), 1.0 / count)
    for i in range(count):
        for j in range(count):
            if run.used[i, j]:
                weight = 1.0 / (2.0 * max(run.degree[i], run.degree[j]))
                matrix[i, j] -= weight
                matrix[i, i] += weight
    inverse = np.linalg.inv(matrix)
    for i in range(count):
        for j in range(i, count):
            run.inverse[i, j] = 0.5 * (inverse[i, j] + inverse[j, i]) - 1.0 / count


@compiled
def add_link(problem: Problem, run: Run, budget: int, i: int, j: int) -> None:
    """Adds (i, j) to the topology, its inverse and its open pairs; the caller scores again."""
    count = len(run.degree)
    first = np.empty(2 * count, dtype=np.int64)
    second = np.empty(2 * count, dtype=np.int64)
    change = np.empty(2 * count)
    first[0], second[0] = i, j
    change[0] = 1.0 / (2.0 * (max(run.degree[i], run.degree[j]) + 1))
    rank = 1
    for end in (i, j):
        degree = run.degree[end]
        for k in range(count):
            if run.used[end, k] and run.degree[k] <= degree:
                first[rank], second[rank] = end, k
                change[rank] = -1.0 / (2.0 * degree * (degree + 1))
                rank += 1
    _enter_link(problem, run, budget, i, j)
    if run.levels[GAP_BOUND] < np.inf:
        for e in range(rank):
            run.levels[GAP_BOUND] += change[e] * (run.fiedler[first[e]] - run.fiedler[second[e]]) ** 2
    if 3 * rank > 2 * count:
        fresh_inverse(run)
    else:
        _low_rank_update(run, first[:rank], second[:rank], change[:rank])
    run.counts[STEPS] += 1
    if run.counts[STEPS] % CHECK_EVERY == 0:
        drift = measure_drift(run)
        run.levels[DRIFT] = max(run.levels[DRIFT], drift)
        if drift > DRIFT_PER_DEVICE * count:
            fresh_inverse(run)


@compiled
def _enter_link(problem: Problem, run: Run, budget: int, i: int, j: int) -> None:
    count = len(run.degree)
    run.used[i, j] = True
    run.used[j, i] = True
    run.open_times[min(i, j), max(i, j)] = 0.0
    for end in (i, j):
        run.degree[end] += 1
        run.load[end] += problem.link_seconds[i, j]
        if run.degree[end] >= problem.cap:
            run.open_times[end, :] = 0.0
            for k in range(count):
                run.open_times[k, end] = 0.0
    if problem.shared:
        run.levels[ITERATE] = max(run.levels[ITERATE], max(run.load[i], run.load[j]))
    else:
        run.levels[ITERATE] = max(run.levels[ITERATE], problem.link_times[i, j])
    if problem.trusted[i, j] or (run.noisy[i] and run.noisy[j]):
        return
    run.noisy[i] = True
    run.noisy[j] = True
    run.counts[NOISY] = run.noisy.sum()
    if budget - run.counts[NOISY] < 2:
        mask_open(problem, run, budget)


@compiled
def _low_rank_update(run: Run, first: Ints, second: Ints, change: Floats) -> None:
    count, rank = len(run.degree), len(change)
    inverse = run.inverse
    difference = np.empty((rank, count))  # U
    for e in range(rank):
        a, b = first[e], second[e]
        for k in range(count):
            difference[e, k] = inverse[min(a, k), max(a, k)] - inverse[min(b, k), max(b, k)]
    core = np.empty((rank, rank))
    for e in range(rank):
        for f in range(rank):
            core[e, f] = difference[e, first[f]] - difference[e, second[f]]
        core[e, e] += 1.0 / change[e]
    solved = np.ascontiguousarray(np.linalg.solve(core, difference))
    if rank < BLAS_FROM:
        for a in range(count):
            _subtract(inverse[a, a:], difference, solved, a)
        return
    for a in range(0, count, BLOCK):
        b = min(a + BLOCK, count)
        inverse[a:b, a:] -= np.dot(np.ascontiguousarray(difference[:, a:b].T), np.ascontiguousarray(solved[:, a:]))


@compiled
def _subtract(row: Floats, difference: Floats, solved: Floats, a: int) -> None:
    """Subtracts Σ_e difference[e, a]·solved[e, a:] from row a of the upper triangle, four at a time."""
    rank, e = len(solved), 0
    while e + 3 < rank:
        u0, u1, u2, u3 = difference[e, a], difference[e + 1, a], difference[e + 2, a], difference[e + 3, a]
        _subtract_four(
            row,
            w0=solved[e, a:],
            w1=solved[e + 1, a:],
            w2=solved[e + 2, a:],
            w3=solved[e + 3, a:],
            u0=u0,
            u1=u1,
            u2=u2,
            u3=u3,
        )
        e += 4
    while e < rank:
        _subtract_one(row, solved[e, a:], difference[e, a])
        e += 1


@compiled
def _subtract_four(
    row: Floats, w0: Floats, w1: Floats, w2: Floats, w3: Floats, u0: float, u1: float, u2: float, u3: float
) -> None:
    for b in range(len(row)):
        row[b] -= u0 * w0[b] + u1 * w1[b] + u2 * w2[b] + u3 * w3[b]


@compiled
def _subtract_one(row: Floats, other: Floats, factor: float) -> None:
    for b in range(len(row)):
        row[b] -= factor * other[b]


@compiled
def multiply(inverse: Floats, vector: Floats, out: Floats) -> None:
    """out = G·vector from the upper triangle."""
    count = len(vector)
    out[:] = 0.0
    for a in range(count):
        above = _multiply_row(inverse[a, a + 1 :], vector[a + 1 :], out[a + 1 :], vector[a])
        out[a] += inverse[a, a] * vector[a] + above


@compiled
def _multiply_row(row: Floats, vector: Floats, out: Floats, own: float) -> float:
    total = 0.0
    for b in range(len(row)):
        total += row[b] * vector[b]
        out[b] += row[b] * own
    return total


@compiled
def probe_vector(count: int) -> Floats:
    """A fixed rough vector orthogonal to the constant one."""
    vector = np.empty(count)
    for k in range(count):
        vector[k] = np.cos(1.7 * k * k + 0.3) + 0.5 * np.sin(2.9 * k)
    vector -= vector.mean()
    return vector


@compiled
def measure_drift(run: Run) -> float:
    """max |(I − A)Gx − x| for a fixed x: how far the updated G has left the true inverse."""
    count = len(run.degree)
    vector = probe_vector(count)
    image = np.empty(count)
    multiply(run.inverse, vector, image)
    worst = 0.0
    for i in range(count):
        total = 0.0
        for j in range(count):
            if run.used[i, j]:
                total += (image[i] - image[j]) / (2.0 * max(run.degree[i], run.degree[j]))
        worst = max(worst, abs(total - vector[i]))
    return worst


@compiled
def improve_gap_bound(run: Run) -> None:
    """One power step of the stale Fiedler vector. y = Gx gives (I − A)y = x, so its quotient is xᵀy/yᵀy ≥ δ."""
    image = np.empty(len(run.degree))
    multiply(run.inverse, run.fiedler, image)
    size = np.dot(image, image)
    run.levels[GAP_BOUND] = np.dot(run.fiedler, image) / size
    run.fiedler[:] = image / np.sqrt(size)


@compiled
def exact_gap(run: Run) -> float:
    """δ = 1/λ_max(G) by Lanczos with full reorthogonalisation, warm-started, to 1e-11 relative.

    The start is shaken: in a symmetric topology the stale vector can be an eigenvector of another eigenvalue.
    """
    count = len(run.degree)
    size = min(KRYLOV, count - 1)
    basis = np.zeros((size + 1, count))
    tridiagonal = np.zeros((size, size))
    probe = probe_vector(count)
    start = run.fiedler + probe * (1e-3 / np.sqrt(np.dot(probe, probe)))
    basis[0] = start / np.sqrt(np.dot(start, start))
    image = np.empty(count)
    for step in range(size):
        multiply(run.inverse, basis[step], image)
        tridiagonal[step, step] = np.dot(basis[step], image)
        for _ in range(2):
            for k in range(step + 1):
                image -= np.dot(basis[k], image) * basis[k]
            image -= image.mean()
        norm = np.sqrt(np.dot(image, image))
        if step % 4 == 3 or step == size - 1 or norm < 1e-13 * tridiagonal[0, 0]:
            values, vectors = np.linalg.eigh(tridiagonal[: step + 1, : step + 1])
            if norm * abs(vectors[step, step]) <= EIGEN_TOLERANCE * values[step]:
                run.fiedler[:] = 0.0
                for k in range(step + 1):
                    run.fiedler[:] += vectors[k, step] * basis[k]
                run.levels[GAP_BOUND] = 1.0 / values[step]
                return float(1.0 / values[step])
        if step + 1 < size:
            tridiagonal[step, step + 1] = norm
            tridiagonal[step + 1, step] = norm
        basis[step + 1] = image / norm
    return dense_gap(run)


@compiled
def dense_gap(run: Run) -> float:
    """δ from all eigenvalues of G, where Lanczos did not settle."""
    full = run.inverse.copy()
    for i in range(len(full)):
        for j in range(i):
            full[i, j] = full[j, i]
    values, vectors = np.linalg.eigh(full)
    run.fiedler[:] = vectors[:, -1]
    run.levels[GAP_BOUND] = 1.0 / values[-1]
    return float(1.0 / values[-1])


@compiled
def time_at(problem: Problem, run: Run, gap: float) -> float:
    """P (13) at the gap given; a lower bound of P where the gap is an upper bound."""
    base = run.levels[HITTING] * run.levels[ITERATE]
    if run.counts[NOISY] == 0:
        return float(base)
    noise = run.counts[NOISY] / (len(run.degree) * problem.epsilon * gap)
    return float(base * (1.0 + noise * noise))


@compiled
def time_unless_above(problem: Problem, run: Run, limit: float) -> float:
    """P exactly if it is below `limit`, otherwise some number that is not."""
    if run.counts[NOISY] == 0:
        return time_at(problem, run, 1.0)
    bound = time_at(problem, run, run.levels[GAP_BOUND])
    if run.levels[GAP_BOUND] < np.inf:
        for _ in range(2):
            if bound >= limit:
                return bound
            improve_gap_bound(run)
            bound = time_at(problem, run, run.levels[GAP_BOUND])
    if bound >= limit:
        return bound
    return time_at(problem, run, exact_gap(run))


@compiled
def weigh_snapshot(problem: Problem, run: Run, best: Best, budget: int, known: bool) -> None:
    """CSS: keeps this topology if it is better than all before; `known` says P already stands in the run."""
    best.counts[WEIGHED] += 1
    limit = threshold(problem, best, run.counts[NOISY])
    time = run.levels[TIME] if known else time_unless_above(problem, run, limit)
    if not time < limit:
        return
    same = best.counts[BEST_RUN] == run.counts[RUN_ID]
    start = best.counts[BEST_LINKS] if same else 0
    links = run.counts[LINKS]
    best.links[start:links] = run.links[start:links]
    best.scores[start:links] = run.scores[start:links]
    best.steps[start:links] = run.steps[start:links]
    best.counts[BEST_RUN] = run.counts[RUN_ID]
    best.counts[BEST_LINKS] = links
    best.counts[BEST_BUDGET] = budget
    best.time[0] = time
