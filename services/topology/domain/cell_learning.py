"""Cells that learn whom to serve from local views: value decomposition and independent learning. [DPVD]

    VDN:  Q_tot = Σ_b Q_b(s_b, a_b),   loss (Q_tot − y)²,          y = R + disc · Σ_b max Q_b(s'_b, ·)
    IQL:  one loss per station on the same team reward R:   (Q_b − (R + disc · max Q_b(s'_b, ·)))²

Training is a pure function of its arguments: every draw comes from one seeded generator, and a checkpoint holds
weights, optimiser, generator and replay, so a resumed run equals an uninterrupted one bit for bit (on one machine and
one thread). Saving and progress are the caller's callbacks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.kit.errors import Conflict
from services.topology.domain.cell_checkpoints import InvalidTraining, Tensors, read_meta, tensors_under, write_meta
from services.topology.domain.cell_learning_config import LearningConfig, Mixing
from services.topology.domain.cell_learning_heads import PointerHead, SetHead
from services.topology.domain.cell_learning_views import Views
from services.topology.domain.radio import draw_delays
from services.topology.domain.scheduling import Cells, Floats, Picks


class PolicyForAnotherLayout(Conflict):
    """A policy, or a checkpoint, was trained for a different layout."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One evaluation: greedy decisions on the fixed states. valid: the part of decisions without violators."""

    step: int
    steps: int
    reward: float
    valid: float


@dataclass(frozen=True, slots=True)
class Policy:
    """A trained policy, bound to its layout by fingerprint and named by the digest of its weights."""

    fingerprint: str
    version: str
    config: LearningConfig
    head: SetHead | PointerHead

    def picks(self, cells: Cells, delay: Floats) -> Picks:
        """The stations' picks in one state, (station, device). Refuses any other layout."""
        if cells.layout.fingerprint() != self.fingerprint:
            raise PolicyForAnotherLayout(
                f"policy {self.version[:12]} was trained for layout {self.fingerprint[:12]}, not "
                f"{cells.layout.fingerprint()[:12]}; train one for this layout or use `matching`"
            )
        picks: Picks = greedy_picks(self.head, delay[None])[0]
        return picks


def td_target(reward: torch.Tensor, next_best: torch.Tensor, discount: float, mixing: Mixing) -> torch.Tensor:
    """y: (n, 1) for VDN, R + disc · Σ_b max Q_b; (n, station) for IQL, R + disc · max Q_b.

    reward: (n,).  next_best: max_a Q_b in the next state, (n, station).
    """
    future = next_best.sum(dim=1, keepdim=True) if mixing == "vdn" else next_best
    return reward[:, None] + discount * future


def greedy_picks(head: SetHead | PointerHead, delay: Floats) -> Picks:
    """Every station's best set by its own value, (state, station, device)."""
    views = head.views
    with torch.no_grad():
        picks: Picks = head.greedy(torch.from_numpy(views.assemble(views.best(delay))), delay)
    return picks


def train(
    cells: Cells,
    config: LearningConfig,
    seed: int,
    *,
    save: Callable[[int, Tensors], None] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    resume: Mapping[str, NDArray[Any]] | None = None,
) -> Policy:
    """Trains a policy for `cells`; about 10 s for the default 1500 steps and 12 devices on one core.

    save(step, tensors) is called before the first step and after every epoch with all that `resume` needs;
    on_progress after every evaluation.
    """
    run = _Run(cells, config, seed)
    if resume is not None:
        run.restore(resume)
    while True:
        if run.step % config.epoch == 0 or run.step == config.steps:
            progress = run.evaluate()
            if on_progress is not None:
                on_progress(progress)
            if save is not None:
                save(run.step, run.tensors())
        if run.step == config.steps:
            break
        run.advance()
    if config.keep_best:
        _load(run.head, run.best)
    return _policy(cells, config, run.head)


def policy_for(cells: Cells, tensors: Mapping[str, NDArray[Any]]) -> Policy:
    """The weights inside a checkpoint at work among other devices: same stations, any devices, identities or channel.

    Only weights that name no device can be moved. Milliseconds; whether the stations are the same is the caller's to
    know, a different number of them is refused here.
    """
    config = LearningConfig(**read_meta(tensors)["config"])
    if config.named:
        raise InvalidTraining("this policy knows its devices one by one; train one with named=False")
    weights = tensors_under(tensors, "best" if config.keep_best else "weights")
    stations = len(weights["element.first"])
    if stations != len(cells.limits):
        raise PolicyForAnotherLayout(
            f"the policy was trained for {stations} stations, there are {len(cells.limits)}; train one for these"
        )
    head = _head(cells, config, np.random.default_rng(0))
    _load(head, weights)
    return _policy(cells, config, head)


class _Run:
    """The whole mutable state of one training run."""

    def __init__(self, cells: Cells, config: LearningConfig, seed: int) -> None:
        self.cells, self.config, self.seed, self.step, self.stored = cells, config, seed, 0, 0
        self.rng = np.random.default_rng(seed)
        self.head = _head(cells, config, self.rng)
        self.optimiser = torch.optim.Adam(self.head.parameters(), lr=config.learning_rate)
        shape = (config.replay, *cells.handled.shape)
        self.seen, self.next_seen = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.picked, self.rewards = np.zeros(shape, bool), np.zeros(config.replay, np.float32)
        # Apart from the training stream, so that evaluating more or less often changes nothing.
        self.best_reward, self.best = -np.inf, self._weights()
        self.trial = draw_delays(cells.layout, np.random.default_rng([seed, 1]), config.evaluation_states)

    def advance(self) -> None:
        """One step: some transitions into the replay, one batch out of it."""
        progress = self.step / self.config.steps
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * (1.0 - 0.9 * progress)
        self._collect(self._exploration(progress))
        self._learn()
        self.step += 1

    def _exploration(self, progress: float) -> float:
        """ε falls linearly over the first half of the run, then stays."""
        first, final = self.config.first_exploration, self.config.final_exploration
        return final + (first - final) * max(0.0, 1.0 - 2.0 * progress)

    def evaluate(self) -> Progress:
        picks = greedy_picks(self.head, self.trial)
        outcomes = [self.cells.decide(d, a) for d, a in zip(self.trial, picks, strict=True)]
        reward = float(np.mean([outcome.reward for outcome in outcomes]))
        valid = float(np.mean([outcome.valid for outcome in outcomes]))
        if reward > self.best_reward:
            self.best_reward, self.best = reward, self._weights()
        return Progress(self.step, self.config.steps, reward, valid)

    def _weights(self) -> Tensors:
        return {name: tensor.numpy().copy() for name, tensor in self.head.state_dict().items()}

    def _collect(self, exploration: float) -> None:
        # States are independent of actions, so one more draw serves as the last transition's next state.
        delay = draw_delays(self.cells.layout, self.rng, self.config.transitions + 1)
        best = self.head.views.best(delay)
        picks = greedy_picks(self.head, delay[:-1])
        for n, state in enumerate(delay[:-1]):
            for b in np.flatnonzero(self.rng.random(picks.shape[1]) < exploration):
                picks[n, b] = self.head.explore(int(b), picks[n, b], state[b], self.config.structured, self.rng)
            slot = self.stored % self.config.replay
            self.seen[slot], self.next_seen[slot], self.picked[slot] = best[n], best[n + 1], picks[n]
            self.rewards[slot] = self.cells.decide(state, picks[n]).reward / self.config.reward_unit
            self.stored += 1

    def _learn(self) -> None:
        config, views = self.config, self.head.views
        rows = self.rng.integers(min(self.stored, config.replay), size=config.batch)
        value = self.head.value(
            torch.from_numpy(views.assemble(self.seen[rows])), torch.from_numpy(self.picked[rows].astype(np.float32))
        )
        following = torch.zeros_like(value)
        if config.discount:
            with torch.no_grad():
                following = self.head.best(torch.from_numpy(views.assemble(self.next_seen[rows])))
        target = td_target(torch.from_numpy(self.rewards[rows]), following, config.discount, config.mixing)
        estimate = value.sum(dim=1, keepdim=True) if config.mixing == "vdn" else value
        loss = ((estimate - target) ** 2).sum(dim=1).mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves Tensor.backward untyped
        self.optimiser.step()

    def tensors(self) -> Tensors:
        """Everything `restore` needs, as plain arrays under safetensors-friendly names."""
        retained = min(self.stored, self.config.replay)
        meta = {
            "fingerprint": self.cells.layout.fingerprint(),
            "config": asdict(self.config),
            "seed": self.seed,
            "step": self.step,
            "stored": self.stored,
            "penalty": self.cells.reward.penalty,
            "best_reward": self.best_reward,
            "generator": self.rng.bit_generator.state,
        }
        answer = write_meta(meta)
        for part, weights in (("weights", self._weights()), ("best", self.best)):
            answer |= {f"{part}.{name}": array for name, array in weights.items()}
        for index, slots in self.optimiser.state_dict()["state"].items():
            for name, tensor in slots.items():
                answer[f"optimiser.{index}.{name}"] = tensor.numpy().copy()
        for name in ("seen", "next_seen", "picked", "rewards"):
            answer[f"replay.{name}"] = getattr(self, name)[:retained].copy()
        return answer

    def restore(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        meta = read_meta(tensors)
        _same_layout(self.cells, meta)
        if meta["config"] != asdict(self.config) or meta["seed"] != self.seed:
            raise InvalidTraining("the checkpoint belongs to another configuration or seed; resume with its own")
        self.step, self.stored = meta["step"], meta["stored"]
        self.rng.bit_generator.state = meta["generator"]
        _load(self.head, tensors_under(tensors, "weights"))
        self.best_reward, self.best = meta["best_reward"], tensors_under(tensors, "best")
        state = self.optimiser.state_dict()
        for key, value in tensors.items():
            if key.startswith("optimiser."):
                _, index, name = key.split(".")
                state["state"].setdefault(int(index), {})[name] = torch.from_numpy(np.array(value))
        self.optimiser.load_state_dict(state)
        for name in ("seen", "next_seen", "picked", "rewards"):
            saved = tensors[f"replay.{name}"]
            getattr(self, name)[: len(saved)] = saved


def _head(cells: Cells, config: LearningConfig, rng: np.random.Generator) -> SetHead | PointerHead:
    views = Views.of(cells, config.prior, named=config.named)
    if config.head == "set":
        return SetHead(views, config.width, config.least, rng)
    # The team's value of serving no device is known exactly; VDN's stations share it, an IQL station has all of it.
    idle = -cells.reward.scale * cells.reward.data_weight * cells.layout.tasks
    parts = len(cells.limits) if config.mixing == "vdn" else 1
    return PointerHead(views, config.width, config.reward_unit, idle / parts, rng)


def _policy(cells: Cells, config: LearningConfig, head: SetHead | PointerHead) -> Policy:
    digest = hashlib.sha256()
    for name, tensor in sorted(head.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return Policy(cells.layout.fingerprint(), digest.hexdigest(), config, head)


def _load(head: SetHead | PointerHead, weights: Tensors) -> None:
    head.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})


def _same_layout(cells: Cells, meta: Mapping[str, Any]) -> None:
    if meta["fingerprint"] != cells.layout.fingerprint():
        raise PolicyForAnotherLayout(
            f"the checkpoint was trained for layout {meta['fingerprint'][:12]}, not "
            f"{cells.layout.fingerprint()[:12]}; train one for this layout or use `matching`"
        )
