"""Two models at once: 12 devices of two hidden kinds around 3 base stations find the model of their kind."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.privacy.ledger import Limit
from coterie.records import Assignment, ParticipationState, Role, RoundState, Task
from coterie.records.reading import plain
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, starting_platform

if TYPE_CHECKING:
    import torch

    from coterie.agent.agent import Agent
    from coterie.samples import Split

DEVICES, ROUNDS, MODELS = 12, 12, 2
SHIFT = 5
"""Devices of the second kind label the digit d as d + 5 modulo 10, so one model cannot fit both kinds."""
CELLS = {"north": (0.0, 250.0), "east": (220.0, -120.0), "west": (-220.0, -120.0)}
CELL = {
    "blocks": 3,
    "power_watts": 0.01,
    "bandwidth_hertz": 150e3,
    "delay_limit_seconds": 0.4,
    "radius_metres": 300.0,
}
TRAINING = {"epochs": 3, "learning_rate": 4.0}
PARAMETERS = {
    "topology": {"policy": "matching", "identity_weight": 0.5},
    # d of the noise problem: the square root of the model's 650 parameters.
    "privacy": {"clip": 1.0, "dimension": 25.0},
}
LIMIT = Limit(20.0, 1e-5)


@register_demo("multitask", "12 devices of two hidden kinds around 3 base stations find their model")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie.samples import digits
    from coterie_cli.console import err

    began = time.monotonic()
    devices, rounds = options.devices or DEVICES, options.rounds or ROUNDS
    with ExitStack() as stack:
        with err.status("starting the platform …"):
            wait = stack.enter_context(starting_platform())
            split = digits(devices, seed=options.seed, concentration=5.0)
            demo = wait()
        for name, (x, y) in CELLS.items():
            demo.admin.put_cell(name, x_metres=x, y_metres=y, **CELL)
        agents = _devices(demo, split, options.seed)
        task = _task(demo, options.seed, rounds, devices)
        demo.run_task(agents, task.id, quiet=options.quiet)
        return _result(demo, task.id, agents, split, began)


def kind_of(index: int) -> int:
    """Return the hidden kind of a device."""
    return index % MODELS


def relabelled(samples: tuple[torch.Tensor, torch.Tensor], kind: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Label the digits as devices of a kind do."""
    return samples[0], (samples[1] + SHIFT * kind) % 10


def regression(seed: int) -> torch.nn.Module:
    """Make a softmax regression on the digits, 64 → 10."""
    import torch

    from coterie.learning.training import seeded

    with seeded(seed):
        return torch.nn.Linear(64, 10)


def _devices(demo: DemoPlatform, split: Split, seed: int) -> list[Agent]:
    """Register devices at random positions, each in the range of a base station."""
    random, centres = np.random.default_rng([seed, 3]), list(CELLS.values())
    token = demo.token_for("Ada", len(split.shards))
    agents = []
    for index, shard in enumerate(split.shards):
        x, y = centres[index % len(centres)]
        distance, angle = 250.0 * np.sqrt(random.random()), 2 * np.pi * random.random()
        place = {"x_metres": float(x + distance * np.cos(angle)), "y_metres": float(y + distance * np.sin(angle))}
        agents.append(
            demo.add_agent(
                token,
                f"device-{index + 1:02d}",
                kind="simulated",
                profile={"location": place},
                model=regression(0),
                data=relabelled(shard, kind_of(index)),
                test_data=relabelled(split.test, kind_of(index)),
                public_test_data=True,
                limit=LIMIT,
            )
        )
    return agents


def _task(demo: DemoPlatform, seed: int, rounds: int, devices: int) -> Task:
    from coterie.learning.training import model_bytes

    models = [model_bytes(regression(MODELS * seed + line + 1)) for line in range(MODELS)]
    return demo.admin.create_task(
        name="multitask",
        preset="multitask",
        model_digests=[demo.admin.upload_model(model) for model in models],
        rounds=rounds,
        min_devices=devices,
        round_seconds=60.0,
        training=TRAINING,
        parameters=PARAMETERS,
        seed=seed,
        privacy_unit="example",
        description="Recognise handwritten digits, whatever you call them",
    )


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A round: devices served, share of right identities, accuracy of each model."""

    round: int
    served: int
    identities_right: float
    accuracy: list[float]
    seconds: float


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device: its hidden kind and the model it chose in each round."""

    name: str
    kind: int
    identities: list[int | None]
    epsilon: float


# --- results ----------------------------------------------------------------------------------------------------------


def identities(demo: DemoPlatform, task_id: str, rounds: int) -> dict[str, list[int | None]]:
    """Return the model each device chose in each round; None where no cell served it."""
    chosen: dict[str, list[int | None]] = {agent.identity.id: [] for agent in demo.agents}
    for number in range(1, rounds + 1):
        parts = {part.device_id: part for part in demo.admin.round(task_id, number).participations}
        for device_id, history in chosen.items():
            part = parts.get(device_id)
            served = part is not None and part.state == ParticipationState.DELIVERED
            history.append(part.model_index if part and served else None)
    return chosen


def right_share(latest: list[int | None]) -> float:
    """Return the share of devices that chose the model of their kind, with either numbering of the models."""
    known = [(model, kind_of(index)) for index, model in enumerate(latest) if model is not None]
    same = sum(model == kind for model, kind in known)
    return max(same, len(known) - same) / len(known) if known else 0.0


def _latest(chosen: dict[str, list[int | None]], number: int) -> list[int | None]:
    """Return the last chosen model of each device after a round."""
    return [next((m for m in reversed(history[:number]) if m is not None), None) for history in chosen.values()]


def _accuracy(demo: DemoPlatform, digest: str, split: Split) -> list[float]:
    """Return the accuracy of a model on held-out digits, for the labels of each kind."""
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training import load_model

    result = []
    for kind in range(MODELS):
        trainer = TorchLearner(regression(0), relabelled(split.test, kind))
        trainer.load(load_model(demo.admin.download_model(digest)))
        result.append(trainer.evaluate()["accuracy"])
    return result


def _result(demo: DemoPlatform, task_id: str, agents: list[Agent], split: Split, began: float) -> dict[str, Any]:
    task = demo.admin.task(task_id)
    done = [item for item in demo.admin.rounds(task_id) if item.state == RoundState.DONE]
    chosen = identities(demo, task_id, len(done))
    rounds = [
        RoundRow(
            round=item.number,
            served=item.delivered,
            identities_right=right_share(_latest(chosen, item.number)),
            accuracy=[max(_accuracy(demo, digest, split)) for digest in item.model_digests],
            seconds=item.done_at - item.opened_at,
        )
        for item in done
    ]
    devices = [
        DeviceRow(
            name=agent.identity.name,
            kind=kind_of(index),
            identities=chosen[agent.identity.id],
            epsilon=agent.home.ledger().spent().epsilon,
        )
        for index, agent in enumerate(agents)
    ]
    right = rounds[-1].identities_right if rounds else 0.0
    accuracy = rounds[-1].accuracy if rounds else [0.0] * MODELS
    models = " and ".join(f"{value:.1%}" for value in accuracy)
    return {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "identities_right": right,
        "accuracy": accuracy,
        "rounds": plain(rounds),
        "devices": plain(devices),
        "tables": _tables(demo, task_id, rounds, devices, agents),
        "headline": f"{right:.0%} of the devices found their model; the models' accuracies are {models}",
        "seconds": time.monotonic() - began,
    }


def _served(assignment: Assignment) -> str:
    if assignment.role == Role.IDLE:
        return "waits"
    return f"{sorted(CELLS)[assignment.group]}, block {assignment.block}, {assignment.upload_seconds:.2f} s"


def _tables(
    demo: DemoPlatform,
    task_id: str,
    rounds: list[RoundRow],
    devices: list[DeviceRow],
    agents: list[Agent],
) -> list[dict[str, Any]]:
    assignments = (
        {assignment.device_id: assignment for assignment in demo.admin.plan(task_id).assignments} if rounds else {}
    )
    by_round = [
        [
            r.round,
            f"{r.served} of {len(devices)}",
            f"{r.identities_right:.0%}",
            *(f"{value:.1%}" for value in r.accuracy),
        ]
        for r in rounds
    ]
    by_device = [
        [
            d.name,
            d.kind,
            " ".join("·" if model is None else str(model) for model in d.identities),
            f"{d.epsilon:.1f}",
            _served(assignments[agent.identity.id]),
        ]
        for d, agent in zip(devices, agents, strict=True)
        if agent.identity.id in assignments
    ]
    return [
        {
            "title": "accuracy on digits held out from training, with the labels of the model's kind",
            "columns": ["round", "served", "identities right", *(f"model {line}" for line in range(MODELS))],
            "rows": by_round,
        },
        {
            "title": "\ndevices: the model chosen in each round (· = not served), and the last round's schedule",
            "columns": ["device", "hidden kind", "identity", "ε spent", "last round"],
            "rows": by_device,
        },
    ]
