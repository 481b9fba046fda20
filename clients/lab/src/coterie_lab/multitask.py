"""Multi-task clusters over scheduled cells: the learners and policies that are compared, and choosing models. [DPVD]"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.topology.domain.cell_learning import Policy
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.cell_learning_views import best_set, ownership
from services.topology.domain.identity import choose_models, clustering_accuracy
from services.topology.domain.scheduling import NO_STATION, Cells, Floats, Picks, Reward
from services.topology.domain.scheduling_policies import at_random, greedy, matching

FIRST_SEED = 100
"""Networks and tasks of the reported figures start here; settings were chosen on seeds below."""

NETWORKS = {
    "3 stations × 4 blocks, 12 devices": {"stations": 3, "blocks": 4, "users": 12},
    "5 stations × 2 blocks, 15 devices": {"stations": 5, "blocks": 2, "users": 15},
}


@dataclass(frozen=True, slots=True)
class Score:
    """One policy on one network: mean reward, part of valid decisions, part of all data served, ms per decision."""

    reward: float
    valid: float
    data: float
    milliseconds: float


def learners(steps: int) -> dict[str, tuple[LearningConfig, Reward]]:
    """The compared learners. "plain ε" drops structured exploration, as the specification's penalty comparison does."""
    plain, growing = LearningConfig.specified, Reward()
    fixed, huge = (Reward(penalty="fixed", fixed_penalty=penalty) for penalty in (1.6e4, 1e5))
    return {
        "specified VDN": (plain("vdn", steps=steps), growing),
        "specified IQL": (plain("iql", steps=steps), growing),
        "VDN, plain ε, growing penalty": (plain("vdn", steps=steps, structured=0.0), growing),
        "VDN, plain ε, fixed penalty 1.6e4": (plain("vdn", steps=steps, structured=0.0), fixed),
        "VDN, plain ε, fixed penalty 1e5": (plain("vdn", steps=steps, structured=0.0), huge),
        "IQL, plain ε, growing penalty": (plain("iql", steps=steps, structured=0.0), growing),
        "pointer VDN, no prior": (LearningConfig(prior="none", steps=steps), growing),
        "pointer IQL, no prior": (LearningConfig(mixing="iql", prior="none", steps=steps), growing),
        "pointer VDN, rivals": (LearningConfig(prior="rivals", steps=steps), growing),
        "pointer VDN, plan": (LearningConfig(steps=steps), growing),
        "pointer IQL, plan": (LearningConfig(mixing="iql", steps=steps), growing),
    }


def measure(cells: Cells, states: Floats, decide: Callable[[Floats], Picks]) -> Score:
    """Mean over states of one policy's outcomes."""
    start = time.perf_counter()
    picks = [decide(delay) for delay in states]
    spent = time.perf_counter() - start
    outcomes = [cells.decide(delay, chosen) for delay, chosen in zip(states, picks, strict=True)]
    data = [cells.shares[outcome.station != NO_STATION].sum() / cells.layout.tasks for outcome in outcomes]
    return Score(
        float(np.mean([outcome.reward for outcome in outcomes])),
        float(np.mean([outcome.valid for outcome in outcomes])),
        float(np.mean(data)),
        1e3 * spent / len(states),
    )


def chooser(policy: Policy, cells: Cells) -> Callable[[Floats], Picks]:
    """A trained policy as a function of the state."""
    return lambda delay: policy.picks(cells, delay)


def common_plan(cells: Cells) -> Callable[[Floats], Picks]:
    """No learning: every station serves the most data among the devices it owns, on its own measured delays."""
    planned = ownership(cells)

    def decide(delay: Floats) -> Picks:
        rows = zip(planned, delay, cells.handled, cells.limits, strict=True)
        return np.stack([best_set(np.where(p, cells.shares, 0.0), d, h, float(limit)) for p, d, h, limit in rows])

    return decide


def references(cells: Cells, states: Floats, seed: int) -> dict[str, Score]:
    """The policies that need no training."""
    rng = np.random.default_rng([seed, 3])
    return {
        "matching (sees all)": measure(cells, states, lambda delay: matching(cells, delay)),
        "common plan (no learning)": measure(cells, states, common_plan(cells)),
        "greedy (sees all)": measure(cells, states, lambda delay: greedy(cells, delay)),
        "random (sees all)": measure(cells, states, lambda delay: at_random(cells, delay, rng)),
    }


@dataclass(frozen=True, slots=True)
class Fleet:
    """The clustering experiment. length: norm of the true models; start: norm of the first guesses, relative to it."""

    tasks: int = 4
    users: int = 40
    samples: int = 20
    dimension: int = 20
    noise: float = 0.5
    rounds: int = 30
    rate: float = 0.1
    length: float = 1.0
    start: float = 0.1


def clustering(fleet: Fleet, weight: float, seed: int) -> NDArray[np.float64]:
    """Accuracy after each round when devices choose by λ = `weight` and every model takes one mean gradient step."""
    rng = np.random.default_rng(seed)
    unit = fleet.length / np.sqrt(fleet.dimension)
    true = unit * rng.normal(size=(fleet.tasks, fleet.dimension))
    truth = np.arange(fleet.users) % fleet.tasks
    x = rng.normal(size=(fleet.users, fleet.samples, fleet.dimension))
    y = np.einsum("und,ud->un", x, true[truth]) + fleet.noise * rng.normal(size=x.shape[:2])
    models = fleet.start * unit * rng.normal(size=true.shape)
    move, accuracy = np.zeros_like(models), []
    for _ in range(fleet.rounds):
        error = np.einsum("und,kd->ukn", x, models) - y[:, None]
        gradient = np.einsum("ukn,und->ukd", error, x) / fleet.samples
        size = np.linalg.norm(gradient, axis=2) * np.linalg.norm(move, axis=1)
        inner = -(gradient * move).sum(axis=2)
        similarity = np.clip(np.divide(inner, size, out=np.zeros_like(inner), where=size > 0), -1.0, 1.0)
        chosen = choose_models(0.5 * (error**2).mean(axis=2), similarity, weight)
        accuracy.append(clustering_accuracy(chosen, truth))
        step = [gradient[chosen == k, k].mean(axis=0) if (chosen == k).any() else 0.0 for k in range(fleet.tasks)]
        move = -fleet.rate * np.stack(np.broadcast_arrays(*step, models[0])[:-1])
        models = models + move
    return np.array(accuracy)
