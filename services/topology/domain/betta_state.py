"""The arrays the compiled planner works on: the problem, one growing topology, and the best snapshot so far.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III-A.

Compiled code takes named tuples of arrays, so scalars that change live in the small arrays `counts` and `levels`
under the indices below. Symmetric matrices are kept in their upper triangle only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from services.kit.runtime.compiled import forget_stale
from services.topology.domain.betta import REL, local_iterate, pseudo_training_time
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.mixing import Bools, Floats

Ints = NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])

forget_stale(Path(__file__).parent)
# Run.counts
LINKS, NOISY, PHASE, STEPS, RUN_ID = range(5)
# Run.levels
ITERATE, HITTING, TIME, GAP_BOUND, DRIFT = range(5)
# Best.counts
BEST_BUDGET, BEST_LINKS, BEST_RUN, WEIGHED = range(4)
# phases, in the order of Run.steps
CAS, SCS, NAS = range(3)


def compiled(function: Function) -> Function:
    """Compiles once per machine and keeps the result in `__pycache__`.

    Sums may be reordered and NaN is taken not to occur, so compiled code must not ask `isfinite`. The cache of a caller
    does not notice a change of a callee in another file: after editing a kernel remove `domain/__pycache__/*.nb*`.
    """
    options = {"nnan", "nsz", "reassoc", "contract", "arcp"}
    return cast(Function, numba.njit(cache=True, fastmath=options)(function))


def _larger(typing_context: Any, first: Any, second: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        kind = ir.FunctionType(double, [double, double])
        return builder.call(builder.module.declare_intrinsic("llvm.maxnum", [double], kind), arguments)

    return types.float64(types.float64, types.float64), generate


larger = cast(Callable[[float, float], float], intrinsic(_larger))
"""max of two numbers, in compiled code only. Python's max minds NaN, which keeps a loop from being vectorised."""


class Problem(NamedTuple):
    """Everything that does not change while planning."""

    trusted: Bools
    link_seconds: Floats
    link_times: Floats
    inverse_times: Floats  # 1/T_ij, 0 where impossible
    batch_seconds: Floats
    social_weight: Floats  # 1/deg_s
    distinct_times: Floats
    friend_start: Ints  # friends of j: friends[friend_start[j]:friend_start[j+1]]
    friends: Ints
    epsilon: float
    cap: int  # V when there is none
    shared: bool
    complete_time: float  # P of the complete graph, ∞ where it cannot arise
    complete_noisy: int  # its number of noisy devices


class Run(NamedTuple):
    """One topology as it grows."""

    inverse: Floats  # G = (I − A)⁺
    open_times: Floats  # 1/T_ij of the pairs that may still be added, else 0
    used: Bools
    degree: Ints
    noisy: Bools
    load: Floats  # r_i + Σ d_ij
    row_best: Floats
    fiedler: Floats
    links: Ints
    scores: Floats
    steps: NDArray[np.int8]
    counts: Ints
    levels: Floats


class Best(NamedTuple):
    """CSS's incumbent."""

    links: Ints
    scores: Floats
    steps: NDArray[np.int8]
    counts: Ints
    time: Floats


def make_problem(network: MeshNetwork, rules: MeshRules) -> Problem:
    """The planner's input in arrays."""
    count = network.devices
    times = network.link_times
    np.fill_diagonal(times, np.inf)
    usable = network.trusted & np.isfinite(times)
    complete_time, complete_noisy = _complete_graph(network, rules)
    return Problem(
        trusted=network.trusted,
        link_seconds=network.link_seconds,
        link_times=times,
        inverse_times=1.0 / times,
        batch_seconds=network.batch_seconds,
        social_weight=1.0 / np.maximum(network.trusted.sum(axis=1), 1),
        distinct_times=np.unique(times[np.isfinite(times)]),
        friend_start=np.concatenate([[0], np.cumsum(usable.sum(axis=1))]).astype(np.int64),
        friends=np.nonzero(usable)[1].astype(np.int64),
        epsilon=float(rules.epsilon),
        cap=count if rules.max_degree is None else min(rules.max_degree, count),
        shared=rules.transfers == "shared",
        complete_time=complete_time,
        complete_noisy=complete_noisy,
    )


def _complete_graph(network: MeshNetwork, rules: MeshRules) -> tuple[float, int]:
    """P and the noisy devices of the complete graph, from H = 2(V−1) and δ = V/(2(V−1)).

    Every run with a budget of at least that many noisy devices ends there, unless a cap or an impossible link forbids.
    """
    count = network.devices
    every_pair = ~np.eye(count, dtype=bool)
    impossible = ~np.isfinite(network.link_seconds)
    noisy = int((every_pair & ~network.trusted & ~impossible).any(axis=1).sum())
    if impossible.any() or (rules.max_degree is not None and rules.max_degree < count - 1):
        return np.inf, noisy
    iterate = local_iterate(network, every_pair, rules.transfers)
    gap = count / (2.0 * (count - 1))
    return pseudo_training_time(2.0 * (count - 1), iterate, gap, noisy / count, rules.epsilon), noisy


def empty_run(count: int) -> Run:
    """Room for one run over `count` devices."""
    pairs = count * (count - 1) // 2
    return Run(
        inverse=np.zeros((count, count)),
        open_times=np.zeros((count, count)),
        used=np.zeros((count, count), dtype=np.bool_),
        degree=np.zeros(count, dtype=np.int64),
        noisy=np.zeros(count, dtype=np.bool_),
        load=np.zeros(count),
        row_best=np.zeros(count),
        fiedler=np.zeros(count),
        links=np.zeros((pairs, 2), dtype=np.int64),
        scores=np.zeros(pairs),
        steps=np.zeros(pairs, dtype=np.int8),
        counts=np.zeros(5, dtype=np.int64),
        levels=np.zeros(5),
    )


def empty_best(count: int) -> Best:
    """No snapshot yet."""
    pairs = count * (count - 1) // 2
    return Best(
        links=np.zeros((pairs, 2), dtype=np.int64),
        scores=np.zeros(pairs),
        steps=np.zeros(pairs, dtype=np.int8),
        counts=np.array([0, 0, -1, 0], dtype=np.int64),
        time=np.array([np.inf]),
    )


@compiled
def copy_run(source: Run, target: Run) -> None:
    """Makes `target` continue from where `source` stands."""
    links = source.counts[LINKS]
    target.inverse[:] = source.inverse
    target.open_times[:] = source.open_times
    target.used[:] = source.used
    target.degree[:] = source.degree
    target.noisy[:] = source.noisy
    target.load[:] = source.load
    target.row_best[:] = source.row_best
    target.fiedler[:] = source.fiedler
    target.links[:links] = source.links[:links]
    target.scores[:links] = source.scores[:links]
    target.steps[:links] = source.steps[:links]
    target.counts[:] = source.counts
    target.levels[:] = source.levels


@compiled
def threshold(problem: Problem, best: Best, noisy: int) -> float:
    """A topology with that many noisy devices can only win below this.

    The complete graph counts as found. It comes last in its own run, so a topology with fewer noisy devices also
    wins when it ties with it.
    """
    slack = 1.0 - REL
    if noisy < problem.complete_noisy:
        return float(min(best.time[0] * slack, problem.complete_time / slack))
    return float(min(best.time[0], problem.complete_time) * slack)
