"""Overhead of a fleet: complete agents with a small CNN against one torch loop over the same samples.

    python bench/fleet.py [--devices 200] [--samples 100] [--rounds 2]

In one run on one machine, after a small fleet to warm up: a plain torch loop over all samples and the fleet with
learners that do not train (what the rounds cost), each before and after, and the fleet in between.
The goal is fleet ≤ 1.3 × loop + rounds, by the clock.
It also prints this process's CPU time, which is comparable on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from coterie.agent.fleet import Fleet
from coterie.learning.learner import Learner
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes, seeded, single_threaded
from coterie.learning.training_config import Instructions
from coterie_cli.demos.demo_platform import DemoPlatform, running_platform

GOAL = 1.3
TRAINING: dict[str, float] = {"epochs": 1, "batch_size": 20, "learning_rate": 0.05}


class Idle(TorchLearner):
    """Learner that neither trains nor evaluates."""

    def train(self, instructions: Instructions, seed: int) -> None:
        """Do nothing."""

    def evaluate(self) -> dict[str, float]:
        """Do nothing."""
        return {}


class Trains(TorchLearner):
    """Learner that trains without evaluation, as the plain loop."""

    def evaluate(self) -> dict[str, float]:
        """Do nothing."""
        return {}


def network() -> torch.nn.Module:
    """Two convolutions and a linear layer on images of 28 × 28."""
    with seeded(0):
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(16 * 7 * 7, 10),
        )


def images(number: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images, of which one quarter is brighter by class."""
    draw = torch.Generator().manual_seed(number)
    targets = torch.randint(0, 10, (samples,), generator=draw)
    return torch.randn(samples, 1, 28, 28, generator=draw) + targets[:, None, None, None] / 5, targets


@dataclass(frozen=True, slots=True)
class Elapsed:
    """Seconds by the clock, and of this process's CPU time: the platform's processes are apart."""

    clock: float
    cpu: float


def mean(one: Elapsed, other: Elapsed) -> Elapsed:
    """Average a run before and a run after, to cancel drift."""
    return Elapsed((one.clock + other.clock) / 2, (one.cpu + other.cpu) / 2)


@contextmanager
def timed() -> Iterator[list[Elapsed]]:
    """Yield a list that holds one entry when the block has ended."""
    result: list[Elapsed] = []
    began = time.perf_counter(), time.process_time()
    yield result
    result.append(Elapsed(time.perf_counter() - began[0], time.process_time() - began[1]))


def loop_takes(shards: Sequence[tuple[torch.Tensor, torch.Tensor]], rounds: int) -> Elapsed:
    """Time a plain loop: one model, one optimiser, all samples in batches."""
    inputs, targets = (torch.cat(item) for item in zip(*shards, strict=True))
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=TRAINING["learning_rate"])
    size, passes = int(TRAINING["batch_size"]), rounds * int(TRAINING["epochs"])
    with timed() as took:
        for _ in range(passes):
            order = torch.randperm(len(targets))
            for start in range(0, len(order), size):
                batch = order[start : start + size]
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(module(inputs[batch]), targets[batch])
                loss.backward()  # type: ignore[no-untyped-call]  # torch's own
                optimizer.step()
    return took[0]


def fleet_takes(demo: DemoPlatform, name: str, learners: list[Learner], rounds: int) -> Elapsed:
    """Time a task from start to end."""
    task = demo.admin.create_task(
        name=name,
        preset="fedavg",
        model_digests=[demo.admin.upload_model(model_bytes(network()))],
        rounds=rounds,
        min_devices=len(learners),
        round_seconds=600.0,
        training=TRAINING,
    )
    token = demo.token_for(name, len(learners))
    fleet = Fleet.register(demo.processes.url, token, learners, folder=demo.folder / name, prefix=name)
    fleet.join(task.id)
    demo.admin.start_task(task.id)
    with timed() as took:
        summary = fleet.run()
    assert summary.outcomes == {"accepted": rounds * len(learners)}, summary
    return took[0]


def measure(devices: int, samples: int, rounds: int) -> dict[str, Any]:
    """Measure loop, rounds and fleet, and compare with the goal."""
    single_threaded()
    shards = [images(number, samples) for number in range(devices)]
    loop_takes(shards[:1], 1)  # what torch does once
    before = loop_takes(shards, rounds)
    with running_platform() as demo:
        fleet_takes(demo, "warm", [Trains(network(), shard) for shard in shards[:8]], 1)  # what a process does once
        still = fleet_takes(demo, "still", [Idle(network(), shard) for shard in shards], rounds)
        whole = fleet_takes(demo, "trains", [Trains(network(), shard) for shard in shards], rounds)
        idle = mean(still, fleet_takes(demo, "again", [Idle(network(), shard) for shard in shards], rounds))
    loop = mean(before, loop_takes(shards, rounds))
    return {
        "devices": devices,
        "samples": samples,
        "rounds": rounds,
        "clock": {"loop": round(loop.clock, 2), "rounds": round(idle.clock, 2), "fleet": round(whole.clock, 2)},
        "cpu": {"loop": round(loop.cpu, 2), "rounds": round(idle.cpu, 2), "fleet": round(whole.cpu, 2)},
        "ratio_by_clock": round((whole.clock - idle.clock) / loop.clock, 3),
        "ratio_by_cpu": round((whole.cpu - idle.cpu) / loop.cpu, 3),
        "goal": GOAL,
        "met_by_clock": whole.clock <= GOAL * loop.clock + idle.clock,
        "met_by_cpu": whole.cpu <= GOAL * loop.cpu + idle.cpu,
    }


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("devices", 200), ("samples", 100), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.devices, chosen.samples, chosen.rounds)))


if __name__ == "__main__":
    main()
