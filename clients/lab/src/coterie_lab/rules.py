"""Attacks against rules: one training in which some devices lie, combined by the server's own rule or by byzfl's.

`lab run ours-rules ours-rules-fashion ours-rules-sybils` runs the experiments. 20 devices learn on uneven data
(Dirichlet 0.5) while some lie in one of nine ways. The byzfl package, where it is installed, combines the same updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from coterie_lab.byzfl_rules import byzfl_rule
from coterie_lab.crowd import Crowd, Matrix, Setting
from coterie_lab.lies import ATTACKS, is_lost, lied
from services.aggregation.domain.rules.axis import rule_for
from services.aggregation.domain.rules.combining import Combination
from services.aggregation.domain.rules.geometry import Gram
from services.aggregation.domain.rules.mixing import Neighbours
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.domain.rules.weighting import trust_weights

DEVICES = 20
SOCIETY, SYBILS = 100, 60
"""Devices in the experiment on trust, and the sybils among them."""
LAST_ROUNDS = 5
"""Accuracy is the mean over these last rounds."""

Combine = Callable[[Matrix], NDArray[np.float64]]


def server_rule(name: str, liars: int, radius: float) -> Combine:
    """Return the server's rule of this name."""
    pre, _, method = name.rpartition("+")
    parameters: dict[str, Any] = {"radius": radius, "iterations": 3} if method == "centred-clipping" else {}
    if pre or method in ("trimmed-mean", "krum", "multi-krum", "mean-around-median"):
        parameters["f"] = liars
    rule = rule_for(method, parameters, pre or None)
    return lambda updates: np.concatenate(list(Combination(rule, ArrayRows.of(updates)).chunks()))


def run(setting: Setting, rule: str, attack: str, liars: int, seed: int) -> float:
    """Accuracy of one training with `liars` of the devices lying; 0 where training diverges."""
    crowd, rng = Crowd(setting, DEVICES, seed), np.random.default_rng(seed + 1)
    combine, scores = combiner(rule, liars, setting.radius, seed), []
    for number in range(setting.rounds):
        updates = lied(crowd, attack, liars, rng)
        if is_lost(updates):
            return 0.0
        crowd.model = crowd.model + combine(updates)
        if number >= setting.rounds - LAST_ROUNDS:
            scores.append(crowd.accuracy())
    return float(np.mean(scores))


def combiner(rule: str, liars: int, radius: float, seed: int) -> Combine:
    """Return the server's rule, or "byzfl …" for that package's after the server's mixing, which is faster."""
    if not rule.startswith("byzfl "):
        return server_rule(rule, liars, radius)
    pre, _, method = rule.removeprefix("byzfl ").rpartition("+")
    other = byzfl_rule(method, liars, radius)
    if other is None:
        raise ModuleNotFoundError(f"{rule} needs the package byzfl: pip install byzfl")
    np.random.seed(seed)  # the generator that byzfl draws from
    return (lambda updates: other(mixed(updates, liars))) if pre else other


def mixed(updates: Matrix, liars: int) -> Matrix:
    """Replace every update by the mean of its nearest, with the same result as byzfl's NNM."""
    squared = Gram.of(ArrayRows.of(updates), None).squared_distances()
    return Neighbours(liars).mixture(squared, np.ones(len(updates)), np.arange(len(updates))) @ updates


@dataclass(frozen=True, slots=True)
class _Pairs:
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    trust: NDArray[np.float64]


def run_with_sybils(setting: Setting, rule: str, attack: str, seed: int) -> float:
    """Accuracy of 40 honest devices and 60 sybils that trust each other; 2 % of ties cross, 3 devices are known."""
    honest_devices, rng = SOCIETY - SYBILS, np.random.default_rng(seed)
    edges = [
        (a, b, float(rng.uniform(0.5, 1))) for a, b in nx.watts_strogatz_graph(honest_devices, 8, 0.3, seed=seed).edges
    ]
    edges += [
        (a + honest_devices, b + honest_devices, 1.0)
        for a, b in nx.watts_strogatz_graph(SYBILS, 8, 0.3, seed=seed).edges
    ]
    edges += [
        (int(rng.integers(honest_devices)), int(rng.integers(honest_devices, SOCIETY)), 0.9)
        for _ in range(int(0.02 * len(edges)))
    ]
    a, b, trust = zip(*edges, strict=True)
    weights = trust_weights(SOCIETY, _Pairs(np.array(a), np.array(b), np.array(trust)), [0, 1, 2]).tolist()
    crowd = Crowd(setting, honest_devices, seed)
    parameters: dict[str, Any] = {"share": 0.2} if "trimmed" in rule else {}
    parameters |= {"radius": setting.radius, "iterations": 3} if "clipping" in rule else {}
    by_trust, method = rule.startswith("trust+"), rule.removeprefix("trust+")
    for _ in range(setting.rounds):
        honest = crowd.changes(range(0))
        lies = ATTACKS[attack](honest, np.repeat(honest, 2, 0)[:SYBILS], rng)
        if is_lost(honest) or is_lost(lies):
            return 0.0
        rows = ArrayRows.of(np.concatenate([honest, lies]))
        combination = Combination(rule_for(method, parameters), rows, trust=weights if by_trust else None)
        crowd.model = crowd.model + np.concatenate(list(combination.chunks()))
    return crowd.accuracy()
