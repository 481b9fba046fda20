"""Multi-task clusters over scheduled cells: `python -m coterie_lab.multitask [--full] [--out DIR]`. [DPVD]

Compares value decomposition with independent learning, growing with fixed penalties, and all of them with the matching
oracle; measures clustering accuracy against rounds; varies the number of devices. Writes the tables (`multitask.json`,
`multitask-tables.md`) and plots; the readings in docs/results/multitask.md are written by hand from them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from numpy.typing import NDArray

from services.topology.domain.cell_learning import Policy, Progress, train
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.cell_learning_views import best_set, ownership
from services.topology.domain.identity import choose_models, clustering_accuracy
from services.topology.domain.radio import draw_delays, random_layout
from services.topology.domain.scheduling import NOBODY, Cells, Floats, Picks, Reward
from services.topology.domain.scheduling_policies import at_random, greedy, matching

mpl.use("Agg")
from matplotlib import pyplot as plt

FIRST_SEED = 100
"""Networks and tasks of the reported figures start here; settings were chosen on seeds below."""

WEIGHTS = (0.0, 0.2, 0.5, 0.8)

NETWORKS = {
    "3 stations × 4 blocks, 12 devices": {"stations": 3, "blocks": 4, "users": 12},
    "5 stations × 2 blocks, 15 devices": {"stations": 5, "blocks": 2, "users": 15},
}
EPOCH = LearningConfig().epoch


@dataclass(frozen=True, slots=True)
class Score:
    """One policy on one network: mean reward, part of valid decisions, part of all data served, ms per decision."""

    reward: float
    valid: float
    data: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to compute. steps: of each training."""

    seeds: int
    steps: int
    states: int
    clustering_seeds: int


QUICK = Effort(seeds=6, steps=200, states=60, clustering_seeds=10)
FULL = Effort(seeds=6, steps=1500, states=200, clustering_seeds=30)


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
    data = [cells.shares[outcome.station != NOBODY].sum() / cells.layout.tasks for outcome in outcomes]
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


def compare(effort: Effort, network: str, seed: int) -> dict[str, Any]:
    """Every reference's and learner's score on one network, and each learner's curve."""
    torch.set_num_threads(1)
    layout = random_layout(np.random.default_rng(seed), **NETWORKS[network])
    judge = Cells.of(layout)  # everyone is scored with the growing penalty
    states = draw_delays(layout, np.random.default_rng([seed, 2]), effort.states)
    scores = {name: asdict(score) for name, score in references(judge, states, seed).items()}
    curves = {}
    for name, (config, reward) in learners(effort.steps).items():
        history: list[Progress] = []
        policy = train(Cells.of(layout, reward), config, seed, on_progress=history.append)
        scores[name] = asdict(measure(judge, states, chooser(policy, judge)))
        curves[name] = [(p.step, p.reward, p.valid) for p in history]
    return {"scores": scores, "curves": curves}


def crowd(effort: Effort, users: int, seed: int) -> dict[str, Any]:
    """The references and the trained policy with `users` devices around 3 stations of 4 blocks."""
    torch.set_num_threads(1)
    layout = random_layout(np.random.default_rng(seed), users=users)
    cells = Cells.of(layout)
    states = draw_delays(layout, np.random.default_rng([seed, 2]), effort.states)
    policy = train(cells, LearningConfig(steps=max(40, effort.steps // 5)), seed)
    scores = references(cells, states, seed)
    scores["pointer VDN, plan"] = measure(cells, states, chooser(policy, cells))
    return {name: asdict(score) for name, score in scores.items()}


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


def identities(effort: Effort) -> dict[str, Any]:
    """Accuracy curves per λ at the main setting; rounds 15 and 29 at twelve settings the specification leaves open."""
    seeds = range(FIRST_SEED, FIRST_SEED + effort.clustering_seeds)
    main = {str(w): [clustering(Fleet(), w, s).tolist() for s in seeds] for w in WEIGHTS}
    others = []
    for length in (1.0, float(np.sqrt(20))):
        for rate in (0.05, 0.1, 0.3):
            for start in (0.1, 1.0):
                fleet = Fleet(rate=rate, length=length, start=start)
                runs = {w: np.mean([clustering(fleet, w, s) for s in list(seeds)[:10]], axis=0) for w in WEIGHTS}
                row = {str(w): (float(r[15]), float(r[29])) for w, r in runs.items()}
                others.append({"length": length, "rate": rate, "start": start, "accuracy": row})
    return {"main": main, "settings": others}


def first_valid(curve: Sequence[tuple[int, float, float]]) -> str:
    """The first epoch whose greedy decisions are 90 % valid."""
    return next((f"{step / EPOCH:g}" for step, _, valid in curve if valid >= 0.9), "never")


def _spread(rows: Sequence[dict[str, float]]) -> str:
    reward = [row["reward"] for row in rows]
    return f"{np.mean(reward):.0f} | ± {np.std(reward):.0f} ({min(reward):.0f} … {max(reward):.0f})"


def _means(rows: Sequence[dict[str, float]], *keys: str) -> list[float]:
    return [float(np.mean([row[key] for row in rows])) for key in keys]


def tables(result: dict[str, Any]) -> str:
    """All figures as Markdown: mean ± standard deviation over seeds."""
    lines: list[str] = []
    for network, runs in result["compare"].items():
        lines += ["", f"**{network}**", "", "| policy | reward | spread | median | valid | data served | ms |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for name in runs[0]["scores"]:
            rows = [run["scores"][name] for run in runs]
            valid, data, spent = _means(rows, "valid", "data", "milliseconds")
            middle = float(np.median([row["reward"] for row in rows]))
            lines.append(f"| {name} | {_spread(rows)} | {middle:.0f} | {valid:.3f} | {data:.3f} | {spent:.2f} |")
        lines += ["", f"| learner | first epoch of {EPOCH} steps with ≥ 90 % valid, per network |", "|---|---|"]
        for name in runs[0]["curves"]:
            lines.append(f"| {name} | {', '.join(first_valid(run['curves'][name]) for run in runs)} |")
    lines += ["", "| devices | policy | reward | spread | data served | ms |", "|---|---|---|---|---|---|"]
    for users, runs in result["crowds"].items():
        for name in runs[0]:
            rows = [run[name] for run in runs]
            data, spent = _means(rows, "data", "milliseconds")
            lines.append(f"| {users} | {name} | {_spread(rows)} | {data:.3f} | {spent:.2f} |")
    lines += ["", "| λ | round 15 | round 29 |", "|---|---|---|"]
    for weight, runs in result["identities"]["main"].items():
        table = np.array(runs)
        cells = " | ".join(f"{table[:, t].mean():.3f} ± {table[:, t].std():.3f}" for t in (15, 29))
        lines.append(f"| {weight} | {cells} |")
    lines += ["", "| length | rate | start | " + " | ".join(f"λ {w}" for w in WEIGHTS) + " |", "|---" * 7 + "|"]
    for row in result["identities"]["settings"]:
        cells = " | ".join(f"{a:.3f}, {b:.3f}" for a, b in row["accuracy"].values())
        lines.append(f"| {row['length']:.2f} | {row['rate']} | {row['start']} | {cells} |")
    return "\n".join(lines) + "\n"


def write(result: dict[str, Any], folder: Path) -> None:
    """The raw figures and their tables."""
    (folder / "multitask.json").write_text(json.dumps(result))
    (folder / "multitask-tables.md").write_text(tables(result))


def plot(result: dict[str, Any], folder: Path) -> None:
    """Three pictures: learning curves, clustering accuracy, crowds."""
    figure, panels = plt.subplots(1, len(NETWORKS), figsize=(15, 5), sharey=True)
    for axes, (network, runs) in zip(panels, result["compare"].items(), strict=True):
        for name, first in runs[0]["curves"].items():
            if "fixed" in name:
                continue  # its training reward counts another penalty
            table = np.array([[reward for _, reward, _ in run["curves"][name]] for run in runs])
            steps = [step for step, _, _ in first]
            axes.plot(steps, np.median(table, axis=0), label=name)
            axes.fill_between(steps, table.min(axis=0), table.max(axis=0), alpha=0.05)
        oracle = [run["scores"]["matching (sees all)"]["reward"] for run in runs]
        axes.axhline(np.median(oracle), color="black", linestyle="--", label="matching (sees all)")
        axes.set(title=network, xlabel="training step", ylim=(-1500, 20))
    panels[0].set(ylabel="reward of greedy decisions (median, range)")
    panels[-1].legend(fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    _save(figure, folder / "multitask-learning.png")
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for weight, runs in result["identities"]["main"].items():
        table = np.array(runs)
        mean, error = table.mean(axis=0), table.std(axis=0) / np.sqrt(len(table))
        axes.plot(mean, label=f"λ = {weight}")
        axes.fill_between(range(len(mean)), mean - error, mean + error, alpha=0.15)
    axes.plot(15, 0.96, "k*", markersize=11, label="[DPVD]: 96 % after 15")
    axes.set(xlabel="round", ylabel="clustering accuracy (mean, standard error)", ylim=(0.3, 1.02))
    axes.legend(loc="lower right")
    _save(figure, folder / "multitask-identity.png")
    figure, axes = plt.subplots(figsize=(8, 4.5))
    counts = list(result["crowds"])
    for name in result["crowds"][counts[0]][0]:
        data = [_means([run[name] for run in result["crowds"][c]], "data")[0] for c in counts]
        axes.plot([int(c) for c in counts], data, marker="o", label=name)
    axes.set(xlabel="devices (3 stations × 4 blocks)", ylabel="part of all data served", ylim=(0, 1.03))
    axes.legend()
    _save(figure, folder / "multitask-crowds.png")


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs everything and writes the tables and pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="1500 training steps instead of 200; tens of minutes")
    parser.add_argument("--steps", type=int, help="training steps instead of the mode's")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of the results")
    options = parser.parse_args(argv)
    effort = FULL if options.full else QUICK
    if options.steps:
        effort = replace(effort, steps=options.steps)
    options.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"effort": asdict(effort), "identities": identities(effort), "compare": {}, "crowds": {}}
    seeds = range(FIRST_SEED, FIRST_SEED + effort.seeds)
    # Spawned, because a forked child of a process with torch's threads may hang.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as workers:
        for network in NETWORKS:
            runs = result["compare"][network] = []
            for seed, run in zip(seeds, workers.map(partial(compare, effort, network), seeds), strict=True):
                runs.append(run)
                write(result, options.out)  # an interrupted run keeps the networks it finished
                print(f"{network}: network {seed} done", flush=True)
        for users in (6, 12, 24, 48):
            result["crowds"][str(users)] = list(workers.map(partial(crowd, effort, users), seeds))
            print(f"{users} devices done", flush=True)
    write(result, options.out)
    plot(result, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
