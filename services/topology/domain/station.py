"""One base station's own value network: it decides from its own users' views, and learns from the team's reward. [DPVD]

    VDN:  θ_b ← θ_b − η ∇ (Q_b(s_b, a_b) + Σ_{j≠b} Q_j − R)²        IQL:  the same without the neighbours' values

Of its neighbours a station is told the sum of the values they gave their own decisions, and nothing else: that is all
the gradient of (Q_tot − R)² with respect to its own weights needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from services.topology.domain.cell_checkpoints import InvalidTraining, Tensors, read_meta, tensors_under, write_meta
from services.topology.domain.cell_learning import LearningConfig
from services.topology.domain.cell_learning_heads import Layers
from services.topology.domain.cell_learning_views import all_sets, best_set

REMEMBERED, STEPS, BATCH = 200, 8, 16
"""Decisions a station remembers, and how much it learns from each lesson."""


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


class StationNetwork(nn.Module):
    """The network of one station; `started` or `restored`."""

    def __init__(self, config: LearningConfig, features: int, idle: float, rng: np.random.Generator) -> None:
        """idle: the value of serving nobody that a pointer network starts from, in rewards."""
        super().__init__()
        self.config, self.features = config, features
        self.is_pointer = config.head == "pointer"
        self.element = Layers(1, (features, config.width, 1 if self.is_pointer else config.width), rng)
        if self.is_pointer:
            with torch.no_grad():
                self.element.second.zero_()
                self.element.second_bias.zero_()
            self.constant = nn.Parameter(torch.full((1,), idle / config.reward_unit))
        else:
            self.whole = Layers(1, (config.width, config.width, 1), rng)
        self.first = {name: torch.zeros_like(weight) for name, weight in self.named_parameters()}
        self.second = {name: torch.zeros_like(weight) for name, weight in self.named_parameters()}
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
        with torch.no_grad():
            return Choice(picks, float(self._value(sight, picks)) * self.config.reward_unit)

    def _greedy(self, sight: Sight) -> NDArray[np.bool_]:
        with torch.no_grad():
            if self.is_pointer:
                return self._fit(sight, self._scores(sight).numpy().astype(float))
            sets = self._sets(sight)
            chosen = torch.from_numpy(sets.astype(np.float32)) @ self._element(sight)
            return np.asarray(sets[int(self.whole(chosen[None, None])[0, 0, :, 0].argmax())])

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

    def _element(self, sight: Sight) -> Tensor:
        found: Tensor = self.element(torch.from_numpy(sight.view)[None, None])[0, 0]
        return found

    def _scores(self, sight: Sight) -> Tensor:
        start = torch.from_numpy((sight.worth / self.config.reward_unit).astype(np.float32))
        return start + self._element(sight)[:, 0]

    def _value(self, sight: Sight, picks: NDArray[np.bool_]) -> Tensor:
        """Q_b, in units."""
        chosen = torch.from_numpy(picks.astype(np.float32))
        if self.is_pointer:
            return self.constant[0] + (self._scores(sight) * chosen).sum() if len(picks) else self.constant[0]
        total = chosen @ self._element(sight) if len(picks) else torch.zeros(self.config.width)
        value: Tensor = self.whole(total[None, None, None])[0, 0, 0, 0]
        return value

    # --- learning ----------------------------------------------------------------------------------------------------

    def learn(self, experience: Experience) -> None:
        """Remembers what came of a decision, and takes some steps on what it remembers."""
        told = (experience.reward, experience.neighbours)
        if not all(math.isfinite(value) for value in told):
            raise InvalidTraining(f"a reward of {told[0]} beside values of {told[1]} teaches nothing")
        self.remembered = [*self.remembered[1 - REMEMBERED :], experience]
        self.lessons += 1
        rng, unit = np.random.default_rng(self.lessons), self.config.reward_unit
        for _ in range(STEPS):
            losses = []
            for index in rng.integers(len(self.remembered), size=min(BATCH, len(self.remembered))):
                each = self.remembered[index]
                others = each.neighbours if self.config.mixing == "vdn" else 0.0
                losses.append((self._value(each.sight, each.picks) + (others - each.reward) / unit) ** 2)
            self.zero_grad()
            torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self._step()

    def _step(self) -> None:
        """One step of Adam; torch's own brings a compiler along, which takes longer to load than a plan waits."""
        self.steps += 1
        rate, low, high = self.config.learning_rate, 1.0 - 0.9**self.steps, 1.0 - 0.999**self.steps
        with torch.no_grad():
            for name, weight in self.named_parameters():
                gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
                self.first[name].mul_(0.9).add_(gradient, alpha=0.1)
                self.second[name].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                weight.sub_(rate * (self.first[name] / low) / ((self.second[name] / high).sqrt() + 1e-8))

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def tensors(self) -> Tensors:
        """Everything `restored` needs, under names safetensors accepts."""
        meta = {"config": asdict(self.config), "features": self.features, "lessons": self.lessons, "steps": self.steps}
        meta["limits"] = [each.sight.limit for each in self.remembered]
        meta["told"] = [[each.reward, each.neighbours] for each in self.remembered]
        answer = write_meta(meta)
        answer |= {f"weights.{name}": tensor.numpy().copy() for name, tensor in self.state_dict().items()}
        for part, moments in (("first", self.first), ("second", self.second)):
            answer |= {f"{part}.{name}": moment.numpy().copy() for name, moment in moments.items()}
        for number, each in enumerate(self.remembered):
            sight = each.sight
            for name, value in (("view", sight.view), ("worth", sight.worth), ("delay", sight.delay)):
                answer[f"seen.{number}.{name}"] = np.ascontiguousarray(value)
            answer[f"seen.{number}.picks"] = each.picks
        return answer


def restored(tensors: Mapping[str, NDArray[Any]]) -> StationNetwork:
    """A network from a station's checkpoint, or from its part of a trained policy (`station_part`)."""
    meta = read_meta(tensors)
    network = StationNetwork(LearningConfig(**meta["config"]), meta["features"], 0.0, np.random.default_rng(0))
    weights = tensors_under(tensors, "weights")
    network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    network.lessons, network.steps = meta.get("lessons", 0), meta.get("steps", 0)
    for part, moments in (("first", network.first), ("second", network.second)):
        moments |= {name: torch.from_numpy(array) for name, array in tensors_under(tensors, part).items()}
    for number, (limit, told) in enumerate(zip(meta.get("limits", ()), meta.get("told", ()), strict=True)):
        seen = tensors_under(tensors, f"seen.{number}")
        sight = Sight(seen["view"], seen["worth"], seen["delay"], limit)
        network.remembered.append(Experience(sight, seen["picks"], *told))
    return network


def started(features: int, idle: float) -> StationNetwork:
    """A network that has learned nothing: it follows the common plan."""
    return StationNetwork(LearningConfig(named=False), features, idle, np.random.default_rng(0))
