"""Matrix mechanisms: the cost of noise that is correlated over rounds, beside independent noise.

Instead of fresh noise w_t in every round, a *matrix mechanism* adds C⁻¹w: later rounds take back part of a round's
noise (banded: the next few). With a lower triangular C the releases C⁻¹(C·x + w) cost as much as one Gaussian release
of sensitivity max ‖C·p‖, where p marks the rounds of one device; the model after T rounds holds the noise 1ᵀC⁻¹w. The
cost of C at a fixed ε is the product of the two. With all devices in every round, p = 1,

    ‖C·1‖ · ‖C⁻ᵀ1‖ ≥ 1ᵀC⁻¹·C·1 = T        (Cauchy–Schwarz),

and C = I, independent noise, attains T. Where devices take turns in b groups, each in k = T/b rounds, correlated noise
is better than independent noise; `lab run ours-correlated` compares both with all devices in every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.gaussian import exact_multiplier
from coterie_lab.mesh_data import Images
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
    """Groups that take turns, and the bands of the correlated noise; 1 band is independent noise."""

    groups: int
    bands: int

    @property
    def name(self) -> str:
        """Groups and bands in words."""
        return f"{self.groups} group{'s' * (self.groups > 1)}, {self.bands} band{'s' * (self.bands > 1)}"

    def final_noise(self, rounds: int, devices: int) -> float:
        """Deviation of the last model's noise for σ = 1 and clip norm 1, relative to all devices in every round."""
        strategy = banded(rounds, self.bands)
        in_a_round = devices / self.groups
        return sensitivity(strategy, self.groups) * last_noise(strategy) / in_a_round / (rounds / devices)

    def accuracy(self, images: Images, task: Task, seed: int) -> float:
        """Accuracy of the last model, with Gaussian noise of the task's ε on each round's mean."""
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
