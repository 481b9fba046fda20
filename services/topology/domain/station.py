"""One base station's own value network: it decides from its own users' views, and learns from the team's reward. [DPVD]

    VDN:  θ_b ← θ_b − η ∇ (Q_b(s_b, a_b) + Σ_{j≠b} Q_j − R)²        IQL:  the same without the neighbours' values

Of its neighbours a station receives only the sum of the values they gave their own decisions: that is all
the gradient of (Q_tot − R)² with respect to its own weights needs. That gradient is written out here: networks as small
as these need no torch, which takes longer to load than a plan waits, and more memory than all else a station has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.topology.domain.cell_checkpoints import InvalidTraining, Tensors, read_meta, tensors_under, write_meta
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.cell_learning_views import all_sets, best_set

Floats = NDArray[np.float32]
Arrays = dict[str, Floats]
REMEMBERED, STEPS, BATCH = 200, 8, 16
"""Decisions a station remembers, and how much it learns from each lesson."""
CAUTION = 0.05
"""Of a policy's learning rate. A policy is trained on 128 states at a time; a station that has seen five, one of them a
clash with a neighbour, would unlearn with whole steps of Adam that anybody is worth serving."""


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """What a station sees of its users. view: (user, feature).  worth: rewards before anything was learned, (user,).

    delay: seconds, (user, block).  limit: seconds.
    """

    view: NDArray[np.float32]
    worth: NDArray[np.float64]
    delay: NDArray[np.float64]
    limit: float


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Whom a station serves, (user,), and the value it gives that, in rewards."""

    picks: NDArray[np.bool_]
    q_value: float


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """A decision and what came of it. reward and neighbours: in rewards."""

    sight: Sight
    picks: NDArray[np.bool_]
    reward: float
    neighbours: float


class StationNetwork:
    """The network of one station; `started` or `restored`. Weights have a policy's names and shapes, (1, ...) each."""

    def __init__(self, config: LearningConfig, features: int, idle: float, rng: np.random.Generator) -> None:
        """idle: initial value of serving no device in a pointer network, in rewards."""
        self.config, self.features = config, features
        self.is_pointer, width = config.head == "pointer", config.width
        self.weights: Arrays = _layers("element", (features, width, 1 if self.is_pointer else width), rng)
        if self.is_pointer:
            for name in ("element.second", "element.second_bias"):
                self.weights[name] = np.zeros_like(self.weights[name])
            self.weights["constant"] = np.full(1, idle / config.reward_unit, np.float32)
        else:
            self.weights |= _layers("whole", (width, width, 1), rng)
        self.first = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
        self.second = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
        self.steps = self.lessons = 0
        self.remembered: list[Experience] = []

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decide(self, sight: Sight, rng: np.random.Generator | None = None) -> Choice:
        """The best set by its own values that its own blocks carry; with `rng`, now and then another (ε-greedy)."""
        if not len(sight.worth):
            picks = np.zeros(0, dtype=bool)
        else:
            picks = self._greedy(sight)
            if rng is not None and rng.random() < self.config.final_exploration:
                picks = self._other(sight, picks, rng)
        return Choice(picks, self.value(sight, picks) * self.config.reward_unit)

    def _greedy(self, sight: Sight) -> NDArray[np.bool_]:
        element = self._through("element", sight.view)[1]
        if self.is_pointer:
            return self._fit(sight, (self._start(sight) + element[:, 0]).astype(float))
        sets = self._sets(sight)
        return np.asarray(sets[int(self._through("whole", sets.astype(np.float32) @ element)[1][:, 0].argmax())])

    def _other(self, sight: Sight, greedy: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
        """One device forced in or out, and what then fits best."""
        device = int(rng.integers(len(greedy)))
        score = np.where(greedy, 1.0, 0.0)
        score[device] = 0.0 if greedy[device] else len(greedy) + 1.0
        return self._fit(sight, score)

    @staticmethod
    def _fit(sight: Sight, score: NDArray[np.float64]) -> NDArray[np.bool_]:
        return best_set(score, sight.delay, np.ones(len(score), dtype=bool), sight.limit)

    def _sets(self, sight: Sight) -> NDArray[np.bool_]:
        """Every set of its users as large as its blocks allow, the empty one included: it may have none in reach."""
        users, blocks = sight.delay.shape
        sets = all_sets(users, self.config.least, blocks)
        return np.concatenate([np.zeros((1, users), dtype=bool), sets]) if sets.any(axis=1).all() else sets

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, sight: Sight, picks: NDArray[np.bool_]) -> float:
        """Q_b, in units."""
        element = self._through("element", sight.view)[1][picks]
        if self.is_pointer:
            return float(self.weights["constant"][0] + (self._start(sight)[picks] + element[:, 0]).sum())
        return float(self._through("whole", element.sum(axis=0))[1][0])

    def gradient(self, sight: Sight, picks: NDArray[np.bool_]) -> Arrays:
        """∇ Q_b, by weight."""
        view, chosen = sight.view[picks], int(picks.sum())
        hidden, element = self._through("element", view)
        if self.is_pointer:
            result, up = {"constant": np.ones(1, np.float32)}, np.ones((chosen, 1), np.float32)
        else:
            total = element.sum(axis=0, keepdims=True)
            above = self._through("whole", total)[0]
            result, down = self._back("whole", total, above, np.ones((1, 1), np.float32))
            up = np.repeat(down, chosen, axis=0)
        return result | self._back("element", view, hidden, up)[0]

    def _start(self, sight: Sight) -> Floats:
        """What each of its users is worth to it before anything was learned."""
        return (sight.worth / self.config.reward_unit).astype(np.float32)

    def _through(self, part: str, x: Floats) -> tuple[Floats, Floats]:
        """What a hidden ReLU layer and the layer above it make of x, (..., inputs)."""
        w = self.weights
        hidden = np.maximum(x @ w[f"{part}.first"][0] + w[f"{part}.first_bias"][0, 0], np.float32(0.0))
        return hidden, hidden @ w[f"{part}.second"][0] + w[f"{part}.second_bias"][0, 0]

    def _back(self, part: str, x: Floats, hidden: Floats, up: Floats) -> tuple[Arrays, Floats]:
        """The gradients of its weights and of x where that of what comes out is `up`, (n, outputs)."""
        w = self.weights
        within = (up @ w[f"{part}.second"][0].T) * (hidden > 0.0)
        result = {
            f"{part}.first": (x.T @ within)[None],
            f"{part}.first_bias": within.sum(axis=0)[None, None],
            f"{part}.second": (hidden.T @ up)[None],
            f"{part}.second_bias": up.sum(axis=0)[None, None],
        }
        return result, within @ w[f"{part}.first"][0].T

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, experience: Experience) -> None:
        """Remembers what came of a decision, and takes some steps on what it remembers."""
        returns = (experience.reward, experience.neighbours)
        if not all(math.isfinite(value) for value in returns):
            raise InvalidTraining(f"a reward of {returns[0]} beside values of {returns[1]} is not finite")
        self.remembered = [*self.remembered[1 - REMEMBERED :], experience]
        self.lessons += 1
        rng, unit = np.random.default_rng(self.lessons), self.config.reward_unit
        for _ in range(STEPS):
            drawn = rng.integers(len(self.remembered), size=min(BATCH, len(self.remembered)))
            total = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
            for item in (self.remembered[index] for index in drawn):
                others = item.neighbours if self.config.mixing == "vdn" else 0.0
                error = self.value(item.sight, item.picks) + (others - item.reward) / unit
                for name, slope in self.gradient(item.sight, item.picks).items():
                    total[name] += np.float32(2.0 * error / len(drawn)) * slope
            self._step(total)

    def _step(self, gradient: Arrays) -> None:
        """One step of Adam."""
        self.steps += 1
        rate = CAUTION * self.config.learning_rate
        low, high = 1.0 - 0.9**self.steps, 1.0 - 0.999**self.steps
        for name, weight in self.weights.items():
            first, second, slope = self.first[name], self.second[name], gradient[name]
            first += np.float32(0.1) * (slope - first)
            second += np.float32(0.001) * (slope * slope - second)
            weight -= np.float32(rate / low) * first / (np.sqrt(second / np.float32(high)) + np.float32(1e-8))

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def tensors(self) -> Tensors:
        """Everything `restored` needs, under names safetensors accepts."""
        meta = {"config": asdict(self.config), "features": self.features, "lessons": self.lessons, "steps": self.steps}
        meta["limits"] = [item.sight.limit for item in self.remembered]
        meta["outcomes"] = [[item.reward, item.neighbours] for item in self.remembered]
        answer = write_meta(meta)
        for part, arrays in (("weights", self.weights), ("first", self.first), ("second", self.second)):
            answer |= {f"{part}.{name}": array.copy() for name, array in arrays.items()}
        for number, entry in enumerate(self.remembered):
            sight = entry.sight
            for name, value in (("view", sight.view), ("worth", sight.worth), ("delay", sight.delay)):
                answer[f"seen.{number}.{name}"] = np.ascontiguousarray(value)
            answer[f"seen.{number}.picks"] = entry.picks
        return answer


def restored(tensors: Mapping[str, NDArray[Any]]) -> StationNetwork:
    """A network from a station's checkpoint, or from its part of a trained policy (`station_part`)."""
    meta = read_meta(tensors)
    network = StationNetwork(LearningConfig(**meta["config"]), meta["features"], 0.0, np.random.default_rng(0))
    network.lessons, network.steps = meta.get("lessons", 0), meta.get("steps", 0)
    for part, arrays in (("weights", network.weights), ("first", network.first), ("second", network.second)):
        retained = tensors_under(tensors, part)
        if retained.keys() != arrays.keys() and (retained or part == "weights"):
            raise InvalidTraining(f"a checkpoint of a {network.config.head} network has {part} {sorted(arrays)}")
        arrays |= retained
    for number, (limit, returns) in enumerate(zip(meta.get("limits", ()), meta.get("outcomes", ()), strict=True)):
        seen = tensors_under(tensors, f"seen.{number}")
        sight = Sight(seen["view"], seen["worth"], seen["delay"], limit)
        network.remembered.append(Experience(sight, seen["picks"], *returns))
    return network


def started(features: int, idle: float) -> StationNetwork:
    """A network that has learned nothing: it follows the common plan."""
    return StationNetwork(LearningConfig(named=False), features, idle, np.random.default_rng(0))


def _layers(part: str, sizes: tuple[int, int, int], rng: np.random.Generator) -> Arrays:
    """One hidden layer and the one above it, as a policy's begin."""
    inputs, width, outputs = sizes
    shapes = {
        "first": ((1, inputs, width), inputs),
        "first_bias": ((1, 1, width), inputs),
        "second": ((1, width, outputs), width),
        "second_bias": ((1, 1, outputs), width),
    }
    bounds = {name: 1.0 / math.sqrt(max(item, 1)) for name, (_, item) in shapes.items()}
    return {
        f"{part}.{name}": rng.uniform(-bounds[name], bounds[name], shape).astype(np.float32)
        for name, (shape, _) in shapes.items()
    }
