"""Secure sums: fifty devices learn to read digits with ε = 4 for all rounds together, and some die on the way.

The platform sees sums alone. Each device adds its share of the noise that the sum needs. Beside it stands what the same
ε costs where every device must hide by itself, and what the training gives without noise: the same digits with the
same devices, of which the same are lost. Every device has some of every digit. Where each has few of them, updates
point apart, clipping takes more away, and the same noise weighs more (docs/explanation/secure-sums.md).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.agent.home import introduce
from coterie.privacy.accounting import NOTHING
from coterie.privacy.clipping import clip_update
from coterie.privacy.gaussian import exact_multiplier
from coterie.privacy.ledger import Limit
from coterie.privacy.lifetime import Lifetime
from coterie.records import Task
from coterie.strategies.star import change_of
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, starting_platform
from coterie_cli.demos.mesh import digits_regression

if TYPE_CHECKING:
    from coterie.agent.agent import Agent
    from coterie.samples import Split

DEVICES, ROUNDS = 50, 20
EPSILON, DELTA = 4.0, 1e-5
QUORUM, LOST_SHARE = 0.65, 1 / 3
SPARE = 2
"""Sessions that may fail, when clerks are lost, and be held again: each is charged again."""
EVEN = 100.0
"""Concentration of the draw by which digits are dealt."""
TRAINING = {"epochs": 5, "batch_size": 64, "learning_rate": 1.0, "clip_norm": 0.5}
SUMS = {"mode": "secure", "offer_seconds": 10.0, "clerk_seconds": 20.0}


@register_demo("secure", "50 devices, ε = 4 in all: the platform sees only sums; a third of the devices fail")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie.samples import digits
    from coterie_cli.console import err

    began = time.monotonic()
    devices, rounds = max(options.devices or DEVICES, 6), options.rounds or ROUNDS
    noise = noise_for(rounds)
    with ExitStack() as stack:
        with err.status("starting the platform, and owners compare fingerprints …"):
            wait = stack.enter_context(starting_platform())
            split = digits(devices, seed=options.seed, concentration=EVEN)
            demo = wait()
            agents = _devices(demo, split)
            introduce(*(agent.home for agent in agents))
        task = _task(demo, options.seed, rounds, devices, noise)
        stack.enter_context(_said_once())
        demo.run_agents(agents, task.id)
        demo.start_task(task.id)
        died = _let_some_die(demo, task.id, agents, rounds)
        demo.admin.wait_for_end(task.id)
        for agent in agents:
            agent.stop()
        return _result(
            demo,
            task_id=task.id,
            agents=agents,
            died=died,
            split=split,
            rounds=rounds,
            noise=noise,
            began=began,
            seed=options.seed,
        )


@contextmanager
def _said_once() -> Iterator[None]:
    """Every device says what the task costs when it joins; here the result says it for all."""
    log = logging.getLogger("coterie.agent.agent")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def noise_for(rounds: int) -> float:
    """Noise multiplier of each round's sum for ε in all of them and in the spare sessions: their ρ add up."""
    return exact_multiplier(EPSILON, DELTA) * math.sqrt(rounds + SPARE)


def _devices(demo: DemoPlatform, split: Split) -> list[Agent]:
    """An owner for each device, who allows ε in all and nothing without noise."""
    return [
        demo.add_agent(
            demo.token_for(f"owner {number + 1}", 1),
            f"device-{number + 1}",
            kind="simulated",
            model=digits_regression(),
            data=shard,
            limit=Limit(EPSILON * (1 + 1e-9), DELTA, "device"),
        )
        for number, shard in enumerate(split.shards)
    ]


def _task(demo: DemoPlatform, seed: int, rounds: int, devices: int, noise: float) -> Task:
    from coterie.learning.training import model_bytes

    return demo.admin.create_task(
        name="secure digits",
        preset="fedavg",
        privacy="uniform",
        model_digests=[demo.admin.upload_model(model_bytes(digits_regression()))],
        rounds=rounds,
        min_devices=max(4, devices // 2),
        quorum=QUORUM,
        round_seconds=30.0,
        training=TRAINING,
        parameters={"privacy": {"noise_multiplier": noise, "delta": DELTA}, "sums": SUMS},
        seed=seed,
        description="Recognise handwritten digits; the platform sees sums alone",
    )


def _let_some_die(demo: DemoPlatform, task_id: str, agents: list[Agent], rounds: int) -> list[Agent]:
    """In the middle of the task a clerk and others, a third of all, stop without a word."""
    while demo.admin.task(task_id).round <= rounds // 2:
        if demo.errors:
            raise demo.errors[0]
        if demo.admin.task(task_id).state.has_ended:
            return []
        time.sleep(0.1)
    selected = [event.message for event in demo.admin.events(task_id) if event.kind == "sum.committee_selected"]
    clerk = next((agent for agent in agents if selected and agent.identity.id in selected[-1]), agents[0])
    others = [agent for agent in reversed(agents) if agent is not clerk]
    died = [clerk, *others[: math.floor(len(agents) * LOST_SHARE) - 1]]
    for agent in died:
        agent.stop()
    return died


def averaged(split: Split, rounds: int, noise: float, seed: int, lost: Collection[int] = ()) -> float:
    """Accuracy of plain averaging of the same training, here in memory; with `noise`, everybody hides by itself.

    `lost` are places in the split whose devices are gone when half of the rounds are done.
    """
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training_config import Instructions

    random, recipe = np.random.default_rng(seed), Instructions.of(TRAINING)
    trainers = [TorchLearner(digits_regression(), shard, test_data=split.test) for shard in split.shards]
    model = trainers[0].parameters()
    for number in range(rounds):
        moved = {name: np.zeros(value.shape) for name, value in model.items()}
        there = [t for place, t in enumerate(trainers) if number < rounds // 2 or place not in lost]
        for trainer in there:
            trainer.load(model)
            trainer.train(recipe, seed * 1000 + number)
            change = clip_update(change_of(model, trainer.parameters()), recipe.clip_norm).tensors
            for name, value in change.items():
                draw = random.normal(0.0, noise * recipe.clip_norm, value.shape)
                moved[name] += (value + draw) / len(there)
        model = {name: (value + moved[name]).astype(value.dtype) for name, value in model.items()}
    trainers[0].load(model)
    return trainers[0].evaluate()["accuracy"]


def _result(
    demo: DemoPlatform,
    task_id: str,
    agents: list[Agent],
    died: list[Agent],
    split: Split,
    rounds: int,
    noise: float,
    began: float,
    seed: int,
) -> dict[str, Any]:
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training import load_model

    task = demo.admin.task(task_id)
    trainer = TorchLearner(digits_regression(), split.test)
    trainer.load(load_model(demo.admin.download_model(task.model_digests[0])))
    lost = {agents.index(agent) for agent in died}
    accuracy = {
        "secure sums": trainer.evaluate()["accuracy"],
        "everybody hides by itself, same ε (here in memory)": averaged(split, rounds, noise, seed, lost),
        "no noise (here in memory)": averaged(split, rounds, 0.0, seed, lost),
    }
    ledgers = [agent.home.ledger() for agent in agents]
    epsilon = max(ledger.spent().epsilon for ledger in ledgers)
    alone = max(ledger.sums_alone()[1] for ledger in ledgers)
    story = [
        [event.round, str(event.kind), event.message]
        for event in demo.admin.events(task_id)
        if str(event.kind).startswith(("sum.", "clerk."))
    ]
    return {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "devices": len(agents),
        "died": len(died),
        "noise_multiplier": noise,
        "accuracy": accuracy["secure sums"],
        "compared": accuracy,
        "epsilon": epsilon,
        "delta": DELTA,
        "epsilon_if_clerks_collude": replace(NOTHING, gaussian_rho=alone).epsilon(DELTA),
        "tables": _tables(
            accuracy, Lifetime(noise, rounds, DELTA), epsilon=epsilon, alone=alone, died=len(died), story=story
        ),
        "seconds": time.monotonic() - began,
    }


def _tables(
    accuracy: dict[str, float], told: Lifetime, epsilon: float, alone: float, died: int, story: list[list[Any]]
) -> list[dict[str, Any]]:
    collude = replace(NOTHING, gaussian_rho=alone).epsilon(DELTA)
    rows = [
        ["each device was told when it joined", str(told)],
        ["the most a device's ledger says, all rounds", f"ε = {epsilon:.3f} at δ = {DELTA:g} (the device left out)"],
        ["if two clerks worked with the platform", f"ε = {collude:.1f}"],
        ["devices that died in the middle, a clerk among them", str(died)],
    ]
    compared = [[name, f"{value:.1%}"] for name, value in accuracy.items()]
    return [
        {"title": "accuracy on digits held out from training", "columns": ["", "accuracy"], "rows": compared},
        {"title": "\nprivacy", "columns": ["", ""], "rows": rows},
        {"title": "\nhow the last sums came about", "columns": ["round", "what", ""], "rows": story[-8:]},
    ]
