"""One run of the market over real services and agents on Fashion-MNIST, or of a method beside it.

[MPPFL] Multi-Hop Privacy Propagation for Differentially Private Federated Learning in Social Networks, Table 1. Every
run starts its own platform with 20 agents: the platform quotes prices, each agent chooses its budget from its own
costs, clips per example, adds the noise its budget buys, uploads and is paid.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.agent.agent import Agent
from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.learning.local_steps import LocalSteps
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import load_model, model_bytes
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.strategies import strategy_for
from coterie.strategies.budget_sale import noised_descent
from coterie.strategies.context import RoundContext
from coterie_cli.demos.demo_platform import DemoPlatform, running_platform
from coterie_cli.demos.market import meet, publisher_with
from coterie_lab.data import named

DEVICES = 20
TRAINING: dict[str, float] = {"steps": 5, "learning_rate": 2.0, "clip_norm": 1.0}
CREDITS = 10_000_000_000
SPLITS = {"IID": None, "Dirichlet 0.3": 0.3}
METHODS: dict[str, dict[str, Any]] = {
    "market": {"solver": "exact"},
    "social-agnostic": {"risk_weight": 0.0},
    "no noise": {},
}


@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Standardised flat images with their labels."""

    train: torch.Tensor
    train_labels: torch.Tensor
    test: torch.Tensor
    test_labels: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of one run.

    Attributes:
        curve: accuracy on the test images after each round, in percent.
        budget: mean ρ sold per device and round; 0 without noise.
        paid: credits paid in total.
        epsilon: the largest ε of a device's ledger at δ = 1e-5, example level.
        sound: whether the ledger's book adds up after the run.
    """

    curve: tuple[float, ...]
    budget: float
    paid: float
    epsilon: float
    sound: bool


class ClippedSteps:
    """The market's clipped steps without noise, against which the cost of noise is measured."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Train with the market's steps and send the change without noise."""
        change = noised_descent(
            context.learner, context.model(), LocalSteps.of(TRAINING), 1.0, lambda total, sensitivity, multiplier: total
        )
        return Delivery(change, float(context.samples))


def network(seed: int) -> torch.nn.Module:
    """One hidden layer of 64."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def run(method: str, data: Images, parts: Sequence[torch.Tensor], seed: int, rounds: int) -> Outcome:
    """Run one task of one method on its own platform."""
    with running_platform() as ground:
        agents = [
            _device(ground, data, part=part, number=number, seed=seed, method=method)
            for number, part in enumerate(parts)
        ]
        meet(ground, agents)
        publisher, _ = publisher_with(ground, "lab", CREDITS)
        with publisher:
            task_id = _create(publisher, method, seed, rounds)
            ground.run_agents(agents, task_id)
            ground.start_task(task_id)
            ended = ground.admin.wait_for_end(task_id)
        ground.wait_for_agents()
        if ended.state != "finished":
            raise RuntimeError(f"{method} ended as {ended.state}: {ended.reason}")
        paid = list(ground.admin.payments(task=task_id))
        book = ground.admin.verify_book()
        return Outcome(
            curve=_curve(ground.admin, task_id, data, seed),
            budget=sum(item.budget for item in paid) / (rounds * DEVICES),
            paid=sum(item.amount_microcredits for item in paid) / 1e6,
            epsilon=max(agent.home.ledger().spent().epsilon for agent in agents),
            sound=bool(book.sound),
        )


def _create(publisher: Platform, method: str, seed: int, rounds: int) -> str:
    model = publisher.upload_model(model_bytes(network(seed)))
    axes: dict[str, Any] = {
        "preset": "market",
        "parameters": {"pricing": METHODS[method]},
        "escrow_microcredits": CREDITS,
        "training": TRAINING,
        "privacy_unit": "example",
    }
    if method == "no noise":
        axes = {"preset": "fedavg", "training": {"epochs": 1}}
    made = publisher.create_task(
        name=method, model_digests=[model], rounds=rounds, min_devices=DEVICES, round_seconds=120.0, seed=seed, **axes
    )
    return str(made.id)


def _device(ground: DemoPlatform, data: Images, part: torch.Tensor, number: int, seed: int, method: str) -> Agent:
    name = f"device-{number:02d}"
    noise = SeededStream(seed, name)
    agent = ground.add_agent(
        ground.token_for(f"owner {number}", 1),
        name,
        kind="simulated",
        model=network(seed),
        data=(data.train[part], data.train_labels[part]),
        limit=Limit(1e6, 1e-5, "example"),
        simulated_noise=lambda: noise,
        choose=(lambda work: ClippedSteps()) if method == "no noise" else strategy_for,
    )
    costs = np.random.default_rng([seed, number])
    quadratic, linear = float(costs.uniform(0.8, 1.2)), float(costs.uniform(0.02, 0.06))
    agent.home.save_private_settings({"costs": {"quadratic": quadratic, "linear": linear, "fixed": 0.0}})
    return agent


def _curve(platform: Platform, task_id: str, data: Images, seed: int) -> tuple[float, ...]:
    judge, result = TorchLearner(network(seed), (data.test, data.test_labels)), []
    for round in platform.rounds(task_id):
        judge.load(load_model(platform.download_model(round.model_digests[0])))
        result.append(100.0 * judge.evaluate()["accuracy"])
    return tuple(result)


def load_images(folder: Path | None) -> Images:
    """Load Fashion-MNIST from the data folder."""
    if folder is None:
        raise FileNotFoundError("no data folder was given; `lab data --fetch FOLDER` brings Fashion-MNIST")
    arrays = []
    for name in named("Fashion-MNIST").files:
        raw = gzip.decompress((folder / name).read_bytes())
        arrays.append(np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]))
    train, train_labels, test, test_labels = arrays
    images = [torch.from_numpy(x.reshape(-1, 784).astype(np.float32) / 255 - 0.2860) / 0.3530 for x in (train, test)]
    labels = [torch.from_numpy(y.astype(np.int64)) for y in (train_labels, test_labels)]
    return Images(images[0], labels[0], images[1], labels[1])


def split(labels: torch.Tensor, name: str, seed: int, size: int) -> list[torch.Tensor]:
    """Deal `size` examples to every device: at random, or with class shares drawn from the split's Dirichlet."""
    concentration, generator = SPLITS[name], np.random.default_rng(seed)
    by_class = [generator.permutation(np.flatnonzero(labels.numpy() == k)) for k in range(10)]
    used, parts = [0] * 10, []
    for _ in range(DEVICES):
        share = np.full(10, 0.1) if concentration is None else generator.dirichlet(np.full(10, concentration))
        counts = generator.multinomial(size, share)
        chosen = []
        for k, count in enumerate(counts):
            at = np.arange(used[k], used[k] + count) % by_class[k].size
            chosen.append(by_class[k][at])
            used[k] += int(count)
        parts.append(torch.from_numpy(np.concatenate(chosen)))
    return parts
