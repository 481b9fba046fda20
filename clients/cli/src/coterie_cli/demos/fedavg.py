"""Federated averaging: 12 devices of 4 owners, each with a few kinds of digits, learn to read all ten."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.agent.report import Delivery
from coterie.records import Participation, ParticipationState, RoundState, Task, WorkItem
from coterie.strategies import Strategy, strategy_for
from coterie.strategies.context import RoundContext
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, starting_platform
from coterie_cli.progress import TaskProgress

if TYPE_CHECKING:
    from coterie.agent.agent import Agent
    from coterie.samples import Split

OWNERS = ("Ada", "Grace", "Hedy", "Mary")
DEVICES, ROUNDS = 12, 10
QUORUM = 0.8
HONEST_SHARE = 0.3
"""Share of the rounds in which the garbage device is honest and gains the trust that it loses later."""
TRAINING = {"epochs": 5, "batch_size": 16, "learning_rate": 0.15, "momentum": 0.5}


class Garbage:
    """A device that delivers NaN."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Make an update of NaN."""
        tensors = {name: np.full_like(value, np.nan) for name, value in context.model().items()}
        return Delivery(tensors, float(context.samples))


@dataclass(slots=True)
class Outcome:
    """Accuracy, duration and end of each round."""

    accuracy: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    done_at: dict[int, float] = field(default_factory=dict)


@register_demo("fedavg", "12 devices of 4 owners learn to read digits together")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie.samples import digits
    from coterie_cli.console import err

    began = time.monotonic()
    devices, rounds = options.devices or DEVICES, options.rounds or ROUNDS
    with ExitStack() as stack:
        with err.status("starting the platform …"):
            wait = stack.enter_context(starting_platform())
            split = digits(devices, seed=options.seed)
            demo = wait()
        agents = _devices(demo, split, devices, honest_rounds(rounds) if options.garbage_device else rounds)
        task = _task(demo, options.seed, rounds, devices)
        demo.run_agents(agents, task.id)
        outcome = _follow(demo, task.id, split, options)
        demo.wait_for_agents()
        return _result(demo, task.id, agents=agents, split=split, outcome=outcome, began=began, options=options)


def honest_rounds(rounds: int) -> int:
    """Return the number of honest rounds of the garbage device: at least one, and not the last."""
    return min(max(1, round(HONEST_SHARE * rounds)), max(1, rounds - 1))


def _devices(demo: DemoPlatform, split: Split, devices: int, honest: int) -> list[Agent]:
    """Register the devices; the last one delivers garbage after `honest` rounds."""
    from coterie.samples import digits_model

    def turncoat(work: WorkItem) -> Strategy:
        return strategy_for(work) if work.round <= honest else Garbage()

    tokens = {owner: demo.token_for(owner, devices) for owner in OWNERS}
    agents = []
    for index in range(devices):
        owner = OWNERS[index % len(OWNERS)]
        name = f"{owner.lower()}-{index // len(OWNERS) + 1}"
        choose: Callable[[WorkItem], Strategy] = turncoat if index == devices - 1 else strategy_for
        agents.append(
            demo.add_agent(
                tokens[owner],
                name,
                kind="simulated",
                model=digits_model(),
                data=split.shards[index],
                test_data=split.test,
                public_test_data=True,
                choose=choose,
            )
        )
    return agents


def _task(demo: DemoPlatform, seed: int, rounds: int, devices: int) -> Task:
    from coterie.learning.training import model_bytes
    from coterie.samples import digits_model

    digest = demo.admin.upload_model(model_bytes(digits_model(seed)))
    return demo.admin.create_task(
        name="digits",
        preset="fedavg",
        model_digests=[digest],
        rounds=rounds,
        min_devices=max(1, devices - 2),
        round_seconds=60.0,
        quorum=min(QUORUM, max(0.0, 1.0 - 1.5 / devices) or QUORUM),  # with few devices, all but one
        training=TRAINING,
        seed=seed,
        auto_start=False,
        description="Recognise handwritten digits",
    )


def _follow(demo: DemoPlatform, task_id: str, split: Split, options: DemoOptions) -> Outcome:
    """Start the task when all devices have enrolled; measure each new model on held-out digits."""
    from coterie_cli.live import follow
    from coterie_cli.progress import watch

    outcome = Outcome()
    demo.start_task(task_id)

    def measure(progress: TaskProgress) -> None:
        for number, round in progress.rounds.items():
            if round.state == RoundState.DONE and number not in outcome.accuracy:
                outcome.accuracy[number] = _accuracy(demo, round.model_digests[0], split)
                outcome.seconds[number] = round.done_at - round.opened_at
                outcome.done_at[number] = round.done_at

    if options.quiet:
        for progress in watch(demo.admin, task_id):
            measure(progress)
    else:
        follow(demo.admin, task_id, measure)
    return outcome


def _accuracy(demo: DemoPlatform, digest: str, split: Split) -> float:
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training import load_model
    from coterie.samples import digits_model

    trainer = TorchLearner(digits_model(), split.test)
    trainer.load(load_model(demo.admin.download_model(digest)))
    return trainer.evaluate()["accuracy"]


def _result(
    demo: DemoPlatform,
    task_id: str,
    agents: list[Agent],
    split: Split,
    outcome: Outcome,
    began: float,
    options: DemoOptions,
) -> dict[str, Any]:
    task = demo.admin.task(task_id)
    parts = {number: demo.admin.round(task_id, number).participations for number in sorted(outcome.accuracy)}
    delivered = {agent.identity.id: 0 for agent in agents}
    for part in chain.from_iterable(parts.values()):
        delivered[part.device_id] += part.state == ParticipationState.DELIVERED
    total = sum(len(shard[0]) * delivered[agent.identity.id] for agent, shard in zip(agents, split.shards, strict=True))
    return {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "accuracy": outcome.accuracy[max(outcome.accuracy)] if outcome.accuracy else 0.0,
        "rounds": [
            {"round": number, "accuracy": outcome.accuracy[number], "seconds": outcome.seconds[number]}
            for number in sorted(outcome.accuracy)
        ],
        "devices": [
            {
                "name": agent.identity.name,
                "id": agent.identity.id,
                "samples": len(shard[0]),
                "digits": sorted({int(label) for label in shard[1]}),
                "delivered": delivered[agent.identity.id],
                "contribution": len(shard[0]) * delivered[agent.identity.id] / max(total, 1),
            }
            for agent, shard in zip(agents, split.shards, strict=True)
        ],
        "trust": _trust(demo, agents, parts, outcome) if options.garbage_device else [],
        "seconds": time.monotonic() - began,
    }


def _trust(
    demo: DemoPlatform, agents: list[Agent], parts: dict[int, tuple[Participation, ...]], outcome: Outcome
) -> list[dict[str, Any]]:
    """Return for each round the trust in the first device and in the garbage device, and the latter's outcome."""
    honest, garbage = agents[0].identity, agents[-1].identity

    def trusted(device_id: str, at: float) -> float:
        """Return the mean direct trust of the other honest devices in a device."""
        others = {agent.identity.id for agent in agents} - {device_id, garbage.id}
        peers = demo.admin.trust_peers(device_id, at=at)
        return sum(peer.direct for peer in peers if peer.device_id in others) / max(1, len(others))

    return [
        {
            "round": number,
            honest.name: trusted(honest.id, outcome.done_at[number]),
            garbage.name: trusted(garbage.id, outcome.done_at[number]),
            "did": next((part.state.value for part in participations if part.device_id == garbage.id), ""),
        }
        for number, participations in parts.items()
    ]
