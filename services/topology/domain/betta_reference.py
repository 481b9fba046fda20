"""BeTTa step by step, one inverse and one eigenvalue problem per topology: the reference the fast planner must equal.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III-A.

Symbols: n the budget of noisy devices, S the social graph, T_ij = d_ij + max(r_i, r_j), P the pseudo training time.
Cost about V⁶; meant for V ≤ 64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from services.topology.domain.betta import (
    REL,
    MeshPlan,
    PlannedLink,
    Step,
    finish_plan,
    local_iterate,
    pseudo_training_time,
)
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.mixing import Bools, Floats, fundamental_matrix, lazy_metropolis


@dataclass(slots=True)
class _Run:
    """One budget's growing topology."""

    network: MeshNetwork
    rules: MeshRules
    budget: int
    adjacency: Bools
    noisy: Bools
    links: list[PlannedLink] = field(default_factory=list)

    def admissible(self) -> Bools:
        """Unused possible pairs that keep |DP ∪ {i, j}| within the budget; a link outside S makes both ends DP."""
        new = (~self.noisy).astype(int)
        within = self.noisy.sum() + np.add.outer(new, new) <= self.budget
        possible = np.isfinite(self.network.link_seconds) & ~self.adjacency
        return np.triu(possible & (self.network.trusted | within), k=1)

    def add(self, i: int, j: int, step: Step, score: float) -> None:
        trusted = bool(self.network.trusted[i, j])
        self.adjacency[i, j] = self.adjacency[j, i] = True
        if not trusted:
            self.noisy[[i, j]] = True
        self.links.append(PlannedLink(i, j, step, score, trusted))

    def remove_last(self, noisy_before: Bools) -> None:
        link = self.links.pop()
        self.adjacency[link.first, link.second] = self.adjacency[link.second, link.first] = False
        self.noisy = noisy_before

    def pseudo_time(self, inverse: Floats) -> float:
        count = self.network.devices
        hitting = float(count * (np.diag(inverse)[None, :] - inverse).max())
        share = float(self.noisy.sum()) / count
        gap = 1.0 - float(np.linalg.eigvalsh(lazy_metropolis(self.adjacency))[-2]) if share else 1.0
        iterate = local_iterate(self.network, self.adjacency, self.rules.transfers)
        return pseudo_training_time(hitting, iterate, gap, share, self.rules.epsilon)


@dataclass(slots=True)
class _Incumbent:
    """CSS so far: the earliest of the best snapshots, smaller budgets first."""

    time: float = np.inf
    budget: int = 0
    links: tuple[PlannedLink, ...] = ()
    snapshots: int = 0

    def consider(self, run: _Run, time: float) -> None:
        self.snapshots += 1
        if time < self.time * (1.0 - REL) or self.snapshots == 1:
            self.time, self.budget, self.links = time, run.budget, tuple(run.links)


def plan_mesh_reference(network: MeshNetwork, rules: MeshRules) -> MeshPlan:
    """The topology, noisy devices and batches of smallest pseudo training time ([BETTA] §III-A, all five steps)."""
    network.require_connected()
    count = network.devices
    if count == 1:
        return finish_plan(network, rules, (), 0, snapshots=1)
    best = _Incumbent()
    for budget in range(count + 1):
        run = _Run(network, rules, budget, np.zeros((count, count), dtype=bool), np.zeros(count, dtype=bool))
        _connect(run)
        _grow(run, best)
    return finish_plan(network, rules, best.links, best.budget, best.snapshots)


def _connect(run: _Run) -> None:
    """CAS: V−1 times the pair in different components with the least (degree sum, untrusted, T, i, j)."""
    times, trusted = run.network.link_times, run.network.trusted
    component = np.arange(run.network.devices)
    for _ in range(run.network.devices - 1):
        degree = run.adjacency.sum(axis=1)
        apart = run.admissible() & (component[:, None] != component[None, :])
        i, j = np.nonzero(apart)
        order = np.lexsort((j, i, times[i, j], ~trusted[i, j], degree[i] + degree[j]))
        first, second = int(i[order[0]]), int(j[order[0]])
        run.add(first, second, "CAS", float(times[first, second]))
        component[component == component[second]] = component[first]


def _grow(run: _Run, best: _Incumbent) -> None:
    """SCS while it lowers P, then NAS until nothing admissible is left; every topology is a snapshot."""
    social_degree = run.network.trusted.sum(axis=1)
    inverse = fundamental_matrix(lazy_metropolis(run.adjacency))
    time = run.pseudo_time(inverse)
    best.consider(run, time)
    step: Step = "SCS"
    while True:
        degree = social_degree if step == "SCS" else run.adjacency.sum(axis=1)
        choice = _best_pair(run, inverse, degree.astype(np.float64))
        if choice is None:
            return
        noisy_before = run.noisy.copy()
        run.add(choice[0], choice[1], step, choice[2])
        inverse_after = fundamental_matrix(lazy_metropolis(run.adjacency))
        time_after = run.pseudo_time(inverse_after)
        if step == "SCS" and not time_after < time * (1.0 - REL):
            run.remove_last(noisy_before)
            step = "NAS"
            continue
        inverse, time = inverse_after, time_after
        best.consider(run, time)


def _best_pair(run: _Run, inverse: Floats, degree: Floats) -> tuple[int, int, float] | None:
    """The admissible pair of largest max(m_ij, m_ji)/(T_ij deg_i deg_j), (14) or (15); ties go to the first (i, j)."""
    allowed = run.admissible()
    if run.rules.max_degree is not None:
        open_ends = run.adjacency.sum(axis=1) < run.rules.max_degree
        allowed &= np.logical_and.outer(open_ends, open_ends)
    if not allowed.any():
        return None
    diagonal = np.diag(inverse)
    larger = run.network.devices * (np.maximum.outer(diagonal, diagonal) - inverse)
    score = np.where(allowed, larger / (run.network.link_times * np.multiply.outer(degree, degree)), -np.inf)
    i, j = np.argwhere(score >= score.max() * (1.0 - REL))[0]
    return int(i), int(j), float(score[i, j])
