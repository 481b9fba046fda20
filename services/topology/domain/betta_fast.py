"""The mesh planner: BeTTa's plan, the same as the reference's, in a fraction of its time.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III-A.

All budgets of noisy devices share one trajectory and part only where they choose different links, smaller budgets
first, so their results prune the rest. Every shortcut is exact; the winner is evaluated again from scratch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.topology.domain.betta import REL, MeshPlan, PlannedLink, Step, finish_plan
from services.topology.domain.betta_kernels import (
    mask_open,
    score_rows,
    time_unless_above,
    weigh_snapshot,
    weights,
)
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.betta_reference import plan_mesh_reference
from services.topology.domain.betta_search import PRUNED, SPLIT, advance, hopeless
from services.topology.domain.betta_state import (
    BEST_BUDGET,
    BEST_LINKS,
    DRIFT,
    LINKS,
    RUN_ID,
    TIME,
    WEIGHED,
    Best,
    Ints,
    Problem,
    Run,
    copy_run,
    empty_best,
    empty_run,
    make_problem,
)
from services.topology.domain.betta_tree import spanning_tree, start_run, tree_inverse
from services.topology.domain.mixing import Floats

MOST_UNCOMPILED = 20
STEP_NAMES: tuple[Step, ...] = ("CAS", "SCS", "NAS")


class PlannerDrift(ArithmeticError):
    """The running figures left the exact ones by more than scores may differ; the plan would not be trustworthy."""


def plan_mesh(network: MeshNetwork, rules: MeshRules) -> MeshPlan:
    """The topology, noisy devices and batches of smallest pseudo training time; equal to the reference's plan.

    Cost: seconds at V = 256 and minutes at V = 1000 when link times take few values; all-distinct times prune less.
    """
    return plan_mesh_with_drift(network, rules)[0]


def plan_soonest(network: MeshNetwork, rules: MeshRules) -> MeshPlan:
    """The same plan from whichever planner has it sooner: in a small network the reference takes a fraction of a
    second, while the loops of `plan_mesh` take a minute to compile on a machine without the cache."""
    if network.devices <= MOST_UNCOMPILED:
        return plan_mesh_reference(network, rules)
    return plan_mesh(network, rules)


def plan_mesh_with_drift(network: MeshNetwork, rules: MeshRules) -> tuple[MeshPlan, float]:
    """`plan_mesh` and the largest residual |(I − A)Gx − x| met."""
    network.require_connected()
    if network.devices == 1:
        return finish_plan(network, rules, (), 0, snapshots=1), 0.0
    search = _Search(make_problem(network, rules))
    for low, high, tree in _trees(search.problem):
        search.explore(low, high, tree)
    return search.winner(network, rules), search.drift


def _trees(problem: Problem) -> Iterator[tuple[int, int, Ints]]:
    """Ranges of budgets with the same spanning tree. Budget 1 is left out: one noisy device alone gains no link."""
    count = len(problem.batch_seconds)
    low, tree = 0, spanning_tree(problem, 0)
    for budget in range(2, count + 1):
        other = spanning_tree(problem, budget)
        if not np.array_equal(tree, other):
            yield low, (0 if low == 0 and budget == 2 else budget - 1), tree
            low, tree = budget, other
        untrusted = tree[~problem.trusted[tree[:, 0], tree[:, 1]]]
        if len(np.unique(untrusted)) + 2 <= budget:
            break
    yield low, count, tree


class _Search:
    """The buffers of one planning: the shared run, the run of the budget that leaves it, and the incumbent."""

    def __init__(self, problem: Problem) -> None:
        count = len(problem.batch_seconds)
        self.problem = problem
        self.trunk, self.branch = empty_run(count), empty_run(count)
        self.spare: Floats = np.zeros((count, count))
        self.best: Best = empty_best(count)
        self.before_links: Ints = np.zeros((0, 2), dtype=np.int64)
        self.before_scores: Floats = np.zeros(0)
        self.before_steps: list[Step] = []
        self.drift = 0.0
        self.runs = 0

    def explore(self, low: int, high: int, tree: Ints) -> None:
        """All runs of the budgets low..high, which start from the same tree."""
        problem, run, best = self.problem, self.trunk, self.best
        start_run(problem, run, tree)
        self._name(run)
        mask_open(problem, run, high)
        if hopeless(problem, run, best, high):
            self._leave(run, low, high, PRUNED)
            return
        tree_inverse(run)
        run.fiedler[:] = 0.0
        score_rows(run, weights(problem, run))
        run.levels[TIME] = time_unless_above(problem, run, np.inf)
        weigh_snapshot(problem, run, best, low, True)
        while True:
            outcome = advance(problem, run, best=best, low=low, high=high, spare=self.spare)
            if outcome != SPLIT:
                self._leave(run, low, high, outcome)
                return
            copy_run(run, self.branch)
            self._name(self.branch)
            mask_open(problem, self.branch, low)
            self._leave(
                self.branch, low, low, advance(problem, self.branch, best=best, low=low, high=low, spare=self.spare)
            )
            self._name(run)
            low = 2 if low == 0 else low + 1

    def _name(self, run: Run) -> None:
        self.runs += 1
        run.counts[RUN_ID] = self.runs

    def _leave(self, run: Run, low: int, high: int, outcome: int) -> None:
        self.drift = max(self.drift, float(run.levels[DRIFT]))
        if outcome == PRUNED and low <= self.problem.complete_noisy <= high:
            links = int(run.counts[LINKS])
            self.before_links = run.links[:links].copy()
            self.before_scores = run.scores[:links].copy()
            self.before_steps = [STEP_NAMES[step] for step in run.steps[:links]]

    def winner(self, network: MeshNetwork, rules: MeshRules) -> MeshPlan:
        """CSS between the best snapshot and the complete graph, which was known from the start."""
        best, problem = self.best, self.problem
        time, budget = float(best.time[0]), int(best.counts[BEST_BUDGET])
        slack = 1.0 - REL
        if budget <= problem.complete_noisy:
            complete = problem.complete_time < time * slack
        else:
            complete = not time < problem.complete_time * slack
        weighed = int(best.counts[WEIGHED])
        if complete:
            links, budget, time = self._complete_links(), problem.complete_noisy, problem.complete_time
        else:
            count = int(best.counts[BEST_LINKS])
            steps = [STEP_NAMES[step] for step in best.steps[:count]]
            links = self._explain(best.links[:count], best.scores[:count], steps)
        plan = finish_plan(network, rules, tuple(links), budget, weighed)
        exact = plan.figures.pseudo_training_time
        if np.isfinite(exact) and abs(exact - time) > 10 * REL * exact:
            raise PlannerDrift(f"the winner's pseudo training time is {exact}, the search believed {time}")
        return plan

    def _explain(self, links: Ints, scores: Floats, steps: list[Step]) -> list[PlannedLink]:
        trusted = self.problem.trusted
        return [
            PlannedLink(int(i), int(j), step, float(score), bool(trusted[i, j]))
            for (i, j), step, score in zip(links, steps, scores, strict=True)
        ]

    def _complete_links(self) -> list[PlannedLink]:
        """The links the run to the complete graph had when it was cut short, then every other pair."""
        links = self._explain(self.before_links, self.before_scores, self.before_steps)
        count = len(self.problem.batch_seconds)
        present = {(link.first, link.second) for link in links}
        rest = [(i, j) for i in range(count) for j in range(i + 1, count) if (i, j) not in present]
        return links + [PlannedLink(i, j, "complete", None, bool(self.problem.trusted[i, j])) for i, j in rest]
