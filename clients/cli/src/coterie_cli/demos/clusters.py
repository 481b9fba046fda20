"""Social clusters: three circles of friends, two acquaintances and a stranger learn to read digits; each adds noise to
updates for devices that it does not trust.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.agent.home import introduce
from coterie.privacy.clipping import clip_update
from coterie.privacy.ledger import Limit
from coterie.records import Plan, Task
from coterie.strategies.star import change_of
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, starting_platform
from coterie_cli.demos.market import publisher_with
from coterie_cli.demos.mesh import digits_regression

if TYPE_CHECKING:
    from coterie.agent.agent import Agent
    from coterie.client import Platform
    from coterie.samples import Split

ROUNDS = 8
CIRCLES = (
    ("ada", "alan", "alonzo", "anita"),
    ("barbara", "bjarne", "brian"),
    ("claude", "cynthia"),
)
ACQUAINTANCES, STRANGER = ("dana", "elmer"), "zoe"
CAST = (*(name for circle in CIRCLES for name in circle), *ACQUAINTANCES, STRANGER)
GOOD_MEETINGS, BAD_MEETINGS = 20, 5
"""Friends have only good meetings: trust 20/(20 + 5) = 0.8, less the decay. With five bad meetings besides, trust is
about (20 − 2·5)/(25 + 5) = 0.33, below the threshold."""
CREDITS_PER_POINT = 0.01
ESCROW = 100_000_000
NOISE_MAX = 0.6
TRAINING = {"epochs": 5, "batch_size": 16, "learning_rate": 0.2, "clip_norm": 2.0}


@register_demo("clusters", "12 devices share raw updates with friends and noised ones with others, and are paid for it")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie.samples import digits
    from coterie_cli.console import err

    began = time.monotonic()
    rounds = options.rounds or ROUNDS
    with ExitStack() as stack:
        with err.status("starting the platform …"):
            wait = stack.enter_context(starting_platform(planners=True))
            split = digits(len(CAST), seed=options.seed, concentration=1.0)
            demo = wait()
        agents = devices(demo, split)
        meet(demo, agents)
        publisher, _ = publisher_with(demo, "library", ESCROW)
        stack.callback(publisher.close)
        task = publish(publisher, options.seed, rounds)
        demo.run_task(agents, task.id, quiet=options.quiet)
        return _result(demo, task.id, agents=agents, split=split, rounds=rounds, began=began, seed=options.seed)


def devices(demo: DemoPlatform, split: Split) -> list[Agent]:
    """Register all devices, each with its own owner; all allow raw updates to trusted heads."""
    return [
        demo.add_agent(
            demo.token_for(name.capitalize(), 1),
            name,
            kind="simulated",
            model=digits_regression(),
            data=shard,
            test_data=split.test,
            public_test_data=True,
            limit=Limit(1e4, 1e-5, "device", allow_raw=True),
        )
        for name, shard in zip(CAST, split.shards, strict=True)
    ]


def meet(demo: DemoPlatform, agents: list[Agent]) -> None:
    """Let friends verify keys and meet well, the acquaintances meet with mixed success, and the stranger not at all."""
    known = {agent.identity.name: agent for agent in agents}
    for circle in CIRCLES:
        introduce(*(known[name].home for name in circle))
    friends = [(known[a], known[b]) for circle in CIRCLES for a, b in combinations(circle, 2)]
    demo.meet(friends, GOOD_MEETINGS)
    demo.meet([(known[ACQUAINTANCES[0]], known[ACQUAINTANCES[1]])], GOOD_MEETINGS, BAD_MEETINGS)


def publish(publisher: Platform, seed: int, rounds: int) -> Task:
    """Create the demo's task."""
    from coterie.learning.training import model_bytes

    return publisher.create_task(
        name="clusters",
        preset="clusters",
        model_digests=[publisher.upload_model(model_bytes(digits_regression()))],
        rounds=rounds,
        min_devices=len(CAST) - 2,
        round_seconds=40.0,
        training=TRAINING,
        parameters={"privacy": {"noise_max": NOISE_MAX}, "pricing": {"credits_per_point": CREDITS_PER_POINT}},
        escrow_microcredits=ESCROW,
        seed=seed,
        description="Recognise handwritten digits",
    )


def average_alone(split: Split, rounds: int, noise: float, seed: int) -> float:
    """Compute the accuracy of plain averaging of the same training in memory; all devices clip and add `noise`."""
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training_config import Instructions

    random, recipe = np.random.default_rng(seed), Instructions.of(TRAINING)
    trainers = [TorchLearner(digits_regression(), shard, test_data=split.test) for shard in split.shards]
    model = trainers[0].parameters()
    total = sum(trainer.samples for trainer in trainers)
    for number in range(rounds):
        step = {name: np.zeros(value.shape) for name, value in model.items()}
        for trainer in trainers:
            trainer.load(model)
            trainer.train(recipe, seed * 1000 + number)
            change = change_of(model, trainer.parameters())
            if noise:
                change = clip_update(change, recipe.clip_norm).tensors
            for name, value in change.items():
                draw = random.normal(0.0, noise * recipe.clip_norm, value.shape)
                step[name] += (value + draw) * trainer.samples / total
        model = {name: (value + step[name]).astype(value.dtype) for name, value in model.items()}
    trainers[0].load(model)
    return trainers[0].evaluate()["accuracy"]


def _result(
    demo: DemoPlatform, task_id: str, agents: list[Agent], split: Split, rounds: int, began: float, seed: int
) -> dict[str, Any]:
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training import load_model

    platform = demo.admin
    task, plan = platform.task(task_id), platform.plan(task_id)
    trainer = TorchLearner(digits_regression(), split.test)
    trainer.load(load_model(platform.download_model(task.model_digests[0])))
    accuracy = {
        "plain averaging, no noise": average_alone(split, rounds, 0.0, seed),
        "social clusters": trainer.evaluate()["accuracy"],
        f"plain averaging, noise {NOISE_MAX} on all devices": average_alone(split, rounds, NOISE_MAX, seed),
    }
    paid: dict[str, int] = {agent.identity.id: 0 for agent in agents}
    for payment in platform.payments(task=task_id):
        paid[payment.device_id] += payment.amount_microcredits
    devices = [_device(agent, plan, paid) for agent in agents]
    return {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "accuracy": accuracy["social clusters"],
        "compared": accuracy,
        "stable": plan.details["stable"],
        "mean_payoff": plan.details["mean_payoff"],
        "mean_solo_payoff": plan.details["mean_solo_payoff"],
        "clusters": plan.details["clusters"],
        "devices": devices,
        "paid_microcredits": sum(paid.values()),
        "book": platform.verify_book().to_dict(),
        "tables": _tables(task, plan, agents, devices, accuracy),
        "seconds": time.monotonic() - began,
    }


def _device(agent: Agent, plan: Plan, paid: dict[str, int]) -> dict[str, Any]:
    assignment = next(assignment for assignment in plan.assignments if assignment.device_id == agent.identity.id)
    spent = agent.home.ledger().spent()
    return {
        "name": agent.identity.name,
        "role": assignment.role,
        "head": assignment.head_device_id,
        "noise": assignment.noise_multiplier,
        "payoff": assignment.payoff,
        "paid_microcredits": paid[agent.identity.id],
        "epsilon": spent.epsilon,
        "releases": spent.releases,
        "raw_releases": spent.raw_releases,
        "because": assignment.because,
    }


def _noise_rule(task: Task) -> str:
    """Describe equation (11) with the θ1 and θ2 of the task."""
    topology, privacy = (task.specification.parameters[axis] for axis in ("topology", "privacy"))
    scale, shift = topology["budget_scale"], topology["budget_shift"]
    return (
        f"noise of ε = {scale:g} α/(α + {shift:g}) for trust α in the head, none from "
        f"{privacy['trust_threshold']:g} on, {privacy['noise_max']:g} alone"
    )


def _tables(
    task: Task, plan: Plan, agents: list[Agent], devices: list[dict[str, Any]], accuracy: dict[str, float]
) -> list[dict[str, Any]]:
    names = {agent.identity.id: agent.identity.name for agent in agents}
    details = plan.details
    verdict = "stable: no device gains by moving" if details["stable"] else "not stable by the checker"
    title = f"clusters of plan {plan.version} ({verdict}; payoff {details['mean_payoff']:.2f} against "
    clusters = [
        [
            names[detail["head"]],
            ", ".join(names[m] for m in detail["members"] if m != detail["head"]),
            f"{detail['value']:.2f}",
        ]
        for detail in details["clusters"]
    ]
    rows = [
        [
            device["name"],
            device["role"],
            f"{device['noise']:.3f}",
            f"{device['payoff']:.2f}",
            f"{device['paid_microcredits'] / 1e6:.6f}",
            f"{device['raw_releases']} raw" if not device["releases"] else f"ε = {device['epsilon']:.1f}",
        ]
        for device in devices
    ]
    compared = [[name, f"{value:.1%}"] for name, value in accuracy.items()]
    return [
        {
            "title": f"{title}{details['mean_solo_payoff']:.2f} alone)",
            "columns": ["head", "members", "worth"],
            "rows": clusters,
        },
        {
            "title": f"\ndevices ({_noise_rule(task)})",
            "columns": ["device", "role", "noise", "payoff", "credits paid", "gave away (δ = 1e-5)"],
            "rows": rows,
        },
        {"title": "\naccuracy on held-out digits", "columns": ["", "accuracy"], "rows": compared},
    ]
