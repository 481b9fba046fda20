"""Does noise that is correlated over rounds pay? `python -m coterie_lab.correlated [--seeds 3]`.

Instead of fresh noise in every round, w_t, a *matrix mechanism* adds C⁻¹w: part of a round's noise is taken back in
later ones (banded: in the next few). With a lower triangular C the releases C⁻¹(C·x + w) cost what one Gaussian release
of sensitivity max ‖C·p‖ costs, p the rounds one device is in; the model after T rounds holds the noise 1ᵀC⁻¹w. So what
a C costs at a fixed ε is the product of the two, and for everybody in every round, p = 1,

    ‖C·1‖ · ‖C⁻ᵀ1‖ ≥ 1ᵀC⁻¹·C·1 = T        (Cauchy–Schwarz),

which C = I, independent noise, has: nothing is better. Where a fleet takes turns in b groups, each device in k = T/b
rounds, correlated noise is better than independent noise; this compares both with everybody in every round.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.gaussian import exact_multiplier
from coterie_lab.markdown import table
from coterie_lab.mesh_data import Images, load_images
from coterie_lab.private import CLASSES, DELTA, EVEN, Fleet, clipped
from coterie_lab.private import Setting as Task

Floats = NDArray[np.float64]


def banded(rounds: int, bands: int) -> Floats:
    """Lower triangular C with the first `bands` coefficients of 1/√(1 − x), whose square sums prefixes; 1 band is I."""
    coefficients = [math.comb(2 * k, k) / 4.0**k for k in range(bands)]
    strategy = np.zeros((rounds, rounds))
    for k, value in enumerate(coefficients[:rounds]):
        strategy += value * np.eye(rounds, k=-k)
    return strategy


def sensitivity(strategy: Floats, groups: int) -> float:
    """max ‖C·p‖ over devices that are in every `groups`-th round; C has no negative entries, so all-ones is worst."""
    rounds = len(strategy)
    patterns = [(np.arange(rounds) % groups == first).astype(float) for first in range(groups)]
    return max(float(np.linalg.norm(strategy @ pattern)) for pattern in patterns)


def last_noise(strategy: Floats) -> float:
    """‖C⁻ᵀ1‖: deviation of the noise in the sum of all rounds, for one of noise 1."""
    return float(np.linalg.norm(np.linalg.solve(strategy.T, np.ones(len(strategy)))))


@dataclass(frozen=True, slots=True)
class Plan:
    """Who is in which round, and how the noise of rounds hangs together."""

    name: str
    groups: int
    bands: int

    def noise_of_the_end(self, rounds: int, devices: int) -> float:
        """Deviation of the last model's noise for σ = 1 and clip norm 1, over that of everybody in every round."""
        strategy = banded(rounds, self.bands)
        in_a_round = devices / self.groups
        return sensitivity(strategy, self.groups) * last_noise(strategy) / in_a_round / (rounds / devices)

    def accuracy(self, images: Images, task: Task, seed: int) -> float:
        """Of the last model, with Gaussian noise of the task's ε on each round's mean."""
        fleet = Fleet.dealt(images, task.devices, EVEN, seed)
        random, strategy = np.random.default_rng(seed), banded(task.rounds, self.bands)
        model = np.zeros((fleet.inputs.shape[2], CLASSES))
        deviation = exact_multiplier(task.epsilon, DELTA) * sensitivity(strategy, self.groups) * task.clip_norm
        noise = np.linalg.solve(strategy, random.standard_normal((task.rounds, model.size))) * deviation
        for number in range(task.rounds):
            who = np.flatnonzero(np.arange(task.devices) % self.groups == number % self.groups)
            changes = fleet.trained(model, who, task.rate, task.steps)
            mean = (np.sum(clipped(changes, task.clip_norm), axis=0) + noise[number]) / len(who)
            model = model + mean.reshape(model.shape)
        return fleet.accuracy(model)


PLANS = (
    Plan("everybody in every round, independent noise", 1, 1),
    Plan("everybody in every round, 5 bands", 1, 5),
    Plan("5 groups take turns, independent noise", 5, 1),
    Plan("5 groups take turns, 5 bands", 5, 5),
    Plan("10 groups take turns, independent noise", 10, 1),
    Plan("10 groups take turns, 10 bands", 10, 10),
)


def page(images: Images, task: Task, seeds: range) -> str:
    """The table, measured now."""
    rows = []
    for plan in PLANS:
        result = [plan.accuracy(images, task, seed) for seed in seeds]
        relative = plan.noise_of_the_end(task.rounds, task.devices)
        rows.append([plan.name, f"{relative:.2f}", f"{np.mean(result):.1%} ± {np.std(result):.1%}"])
    return table(["", "noise of the last model", "accuracy"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        prog="python -m coterie_lab.correlated", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    given = parser.parse_args(arguments)
    print(page(load_images(None), Task(250, 2.0), range(given.seeds)))


if __name__ == "__main__":
    main()
