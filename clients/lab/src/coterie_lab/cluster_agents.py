"""One run of social clusters over real services and agents, or of a method beside them.

Every run starts its own platform with the twelve devices of `coterie demo clusters`; the methods get the same devices,
data, friendships and order of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.agent.agent import Agent
from coterie.agent.results import RoundResult
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import load_model, model_bytes
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.samples import Split, digits, dirichlet_shares
from coterie_cli.demos.clusters import CAST, CREDITS_PER_POINT, ESCROW, NOISE_MAX, meet
from coterie_cli.demos.demo_platform import DemoPlatform, running_platform
from coterie_cli.demos.market import publisher_with
from coterie_lab.mesh_data import load_images

DELTA = 1e-5
CONCENTRATION = 1.0
MNIST_SAMPLES = 6_000
TRAINING: dict[str, Any] = {"epochs": 5, "batch_size": 16, "learning_rate": 0.2, "clip_norm": 2.0}
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg, no noise": {"preset": "fedavg"},
    "clusters": {
        "preset": "clusters",
        "parameters": {"privacy": {"noise_max": NOISE_MAX}, "pricing": {"credits_per_point": CREDITS_PER_POINT}},
        "escrow_microcredits": ESCROW,
    },
    "uniform noise": {
        "topology": "star",
        "privacy": "uniform",
        "incentive": "none",
        "parameters": {"privacy": {"noise_multiplier": NOISE_MAX}},
    },
}


@dataclass(frozen=True, slots=True)
class Study:
    """One data set dealt to the devices, and how a model for it is trained."""

    name: str
    split: Split
    training: dict[str, Any]

    @property
    def inputs(self) -> int:
        """Pixels of an image."""
        return int(self.split.test[0].shape[1])

    def model(self) -> torch.nn.Module:
        """Softmax regression starting from 0."""
        module = torch.nn.Linear(self.inputs, 10)
        with torch.no_grad():
            module.weight.zero_()
            module.bias.zero_()
        return module


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Results of one run of one method.

    Attributes:
        curve: accuracy on held-out images at the start of each round and after the last.
        delivered: updates the platform accepted.
        epsilons, raw: of each device's ledger: ε of its noised releases at δ (0 without any), raw releases.
        noised: devices with at least one noised release.
        payoff, solo_payoff: mean payoff of the last plan, and of the devices alone; NaN without payoffs.
        stable: whether the last plan is individually stable; None where the plan does not say.
    """

    curve: tuple[float, ...]
    delivered: int
    epsilons: tuple[float, ...]
    raw: tuple[int, ...]
    noised: int
    payoff: float
    solo_payoff: float
    stable: bool | None


def study(name: str, folder: Path | None, seed: int) -> Study:
    """Deal the digits, or MNIST from the data folder, unevenly to the devices."""
    if name == "digits":
        return Study(name, digits(len(CAST), seed=seed, concentration=CONCENTRATION), TRAINING)
    images, random = load_images(folder), np.random.default_rng(seed)
    chosen = random.permutation(len(images.train_labels))[:MNIST_SAMPLES]
    pixels = torch.from_numpy(images.train[chosen].astype(np.float32))
    labels = torch.from_numpy(images.train_labels[chosen])
    shares = dirichlet_shares(images.train_labels[chosen], len(CAST), CONCENTRATION, random)
    test = (torch.from_numpy(images.test.astype(np.float32)), torch.from_numpy(images.test_labels))
    split = Split(tuple((pixels[share], labels[share]) for share in shares), test)
    return Study(name, split, TRAINING | {"batch_size": 32, "learning_rate": 0.01})


def run(study: Study, method: str, seed: int, rounds: int) -> Outcome:
    """Run one task of one method on its own platform."""
    accuracies: dict[int, float] = {}
    outcomes: list[str] = []

    def note(result: RoundResult) -> None:
        outcomes.append(result.outcome)
        if "accuracy" in result.metrics:
            accuracies[result.round] = result.metrics["accuracy"]

    with running_platform() as ground:
        agents = [_device(ground, study, number, seed, note) for number in range(len(CAST))]
        meet(ground, agents)
        publisher, _ = publisher_with(ground, "lab", ESCROW)
        with publisher:
            task_id = publisher.create_task(
                name="study",
                model_digests=[publisher.upload_model(model_bytes(study.model()))],
                rounds=rounds,
                min_devices=len(CAST),
                quorum=1.0,
                round_seconds=60.0,
                training=study.training,
                seed=seed,
                auto_start=True,
                **METHODS[method],
            ).id
            ground.run_agents(agents, task_id)
            ended = ground.admin.wait_for_end(task_id)
        ground.wait_for_agents()
        if ended.state != "finished":
            raise RuntimeError(f"{method} on {study.name} ended as {ended.state}: {ended.reason}")
        final = _accuracy(study, load_model(ground.admin.download_model(ended.model_digests[0])))
        details = ground.admin.plan(task_id).details
        spent = [agent.home.ledger().spent() for agent in agents]
    return Outcome(
        curve=(*(accuracies[number] for number in sorted(accuracies)), final),
        delivered=sum(outcome in ("accepted", "repeated") for outcome in outcomes),
        epsilons=tuple(item.epsilon for item in spent),
        raw=tuple(item.raw_releases for item in spent),
        noised=sum(item.releases > 0 for item in spent),
        payoff=details.get("mean_payoff", float("nan")),
        solo_payoff=details.get("mean_solo_payoff", float("nan")),
        stable=details.get("stable"),
    )


def _device(ground: DemoPlatform, study: Study, number: int, seed: int, note: Callable[[RoundResult], None]) -> Agent:
    name = CAST[number]
    noise = SeededStream(seed, name)
    return ground.add_agent(
        ground.token_for(name.capitalize(), 1),
        name,
        kind="simulated",
        model=study.model(),
        data=study.split.shards[number],
        test_data=study.split.test,
        public_test_data=True,
        limit=Limit(1e4, DELTA, "device", allow_raw=True),
        simulated_noise=lambda: noise,
        on_round=note,
    )


def _accuracy(study: Study, tensors: Mapping[str, NDArray[Any]]) -> float:
    trainer = TorchLearner(study.model(), study.split.test)
    trainer.load(tensors)
    return float(trainer.evaluate()["accuracy"])
