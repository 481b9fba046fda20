"""Secure sums: fifty devices learn to read digits with ε = 4 over all rounds, and a third of them fail.

The platform sees only sums, and each device adds its share of the noise. For comparison the demo trains with the same
ε where each device adds all the noise itself, and without noise: same digits, same devices, same failures. Every device
has samples of every digit; with few digits per device, clipping and noise cost more accuracy
(docs/explanation/secure-sums.md).
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
"""Sessions that may fail and be repeated when clerks are lost; each is charged again."""
EVEN = 100.0
"""Concentration of the Dirichlet distribution of digits over devices."""
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
        with err.status("starting the platform and comparing fingerprints …"):
            wait = stack.enter_context(starting_platform())
            split = digits(devices, seed=options.seed, concentration=EVEN)
            demo = wait()
            agents = _devices(demo, split)
            introduce(*(agent.home for agent in agents))
        task = _task(demo, options.seed, rounds, devices, noise)
        stack.enter_context(_quiet_agents())
        demo.run_agents(agents, task.id)
        demo.start_task(task.id)
        stopped = _stop_some(demo, task.id, agents, rounds)
        demo.admin.wait_for_end(task.id)
        for agent in agents:
            agent.stop()
        return _result(
            demo,
            task_id=task.id,
            agents=agents,
            stopped=stopped,
            split=split,
            rounds=rounds,
            noise=noise,
            began=began,
            seed=options.seed,
        )


@contextmanager
def _quiet_agents() -> Iterator[None]:
    """Silence the agents' message about the cost of the task; the result shows it once."""
    log = logging.getLogger("coterie.agent.agent")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def noise_for(rounds: int) -> float:
    """Return the noise multiplier of each sum for a total ε over all rounds and spare sessions: their ρ add up."""
    return exact_multiplier(EPSILON, DELTA) * math.sqrt(rounds + SPARE)


def _devices(demo: DemoPlatform, split: Split) -> list[Agent]:
    """Register devices with one owner each, who allows a total ε and nothing without noise."""
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


def _stop_some(demo: DemoPlatform, task_id: str, agents: list[Agent], rounds: int) -> list[Agent]:
    """Stop a clerk and other devices, a third of all, in the middle of the task."""
    while demo.admin.task(task_id).round <= rounds // 2:
        if demo.errors:
            raise demo.errors[0]
        if demo.admin.task(task_id).state.has_ended:
            return []
        time.sleep(0.1)
    selected = [event.message for event in demo.admin.events(task_id) if event.kind == "sum.committee_selected"]
    clerk = next((agent for agent in agents if selected and agent.identity.id in selected[-1]), agents[0])
    others = [agent for agent in reversed(agents) if agent is not clerk]
    stopped = [clerk, *others[: math.floor(len(agents) * LOST_SHARE) - 1]]
    for agent in stopped:
        agent.stop()
    return stopped


def averaged(split: Split, rounds: int, noise: float, seed: int, lost: Collection[int] = ()) -> float:
    """Compute the accuracy of plain averaging of the same training in memory; with `noise`, each device adds all of it.

    `lost` are indices of the devices that stop after half of the rounds.
    """
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training_config import Instructions

    random, recipe = np.random.default_rng(seed), Instructions.of(TRAINING)
    trainers = [TorchLearner(digits_regression(), shard, test_data=split.test) for shard in split.shards]
    model = trainers[0].parameters()
    for number in range(rounds):
        step = {name: np.zeros(value.shape) for name, value in model.items()}
        remaining = [t for place, t in enumerate(trainers) if number < rounds // 2 or place not in lost]
        for trainer in remaining:
            trainer.load(model)
            trainer.train(recipe, seed * 1000 + number)
            change = clip_update(change_of(model, trainer.parameters()), recipe.clip_norm).tensors
            for name, value in change.items():
                draw = random.normal(0.0, noise * recipe.clip_norm, value.shape)
                step[name] += (value + draw) / len(remaining)
        model = {name: (value + step[name]).astype(value.dtype) for name, value in model.items()}
    trainers[0].load(model)
    return trainers[0].evaluate()["accuracy"]


def _result(
    demo: DemoPlatform,
    task_id: str,
    agents: list[Agent],
    stopped: list[Agent],
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
    lost = {agents.index(agent) for agent in stopped}
    accuracy = {
        "secure sums": trainer.evaluate()["accuracy"],
        "each device adds all the noise, same ε (in memory)": averaged(split, rounds, noise, seed, lost),
        "no noise (in memory)": averaged(split, rounds, 0.0, seed, lost),
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
        "stopped": len(stopped),
        "noise_multiplier": noise,
        "accuracy": accuracy["secure sums"],
        "compared": accuracy,
        "epsilon": epsilon,
        "delta": DELTA,
        "epsilon_if_clerks_collude": replace(NOTHING, gaussian_rho=alone).epsilon(DELTA),
        "tables": _tables(
            accuracy, Lifetime(noise, rounds, DELTA), epsilon=epsilon, alone=alone, stopped=len(stopped), story=story
        ),
        "seconds": time.monotonic() - began,
    }


def _tables(
    accuracy: dict[str, float], lifetime: Lifetime, epsilon: float, alone: float, stopped: int, story: list[list[Any]]
) -> list[dict[str, Any]]:
    collude = replace(NOTHING, gaussian_rho=alone).epsilon(DELTA)
    rows = [
        ["cost that each device saw when it joined", str(lifetime)],
        ["most ε in a device's ledger, all rounds", f"ε = {epsilon:.3f} at δ = {DELTA:g} (the device left out)"],
        ["if two clerks colluded with the platform", f"ε = {collude:.1f}"],
        ["devices that stopped in the middle, with a clerk", str(stopped)],
    ]
    compared = [[name, f"{value:.1%}"] for name, value in accuracy.items()]
    return [
        {"title": "accuracy on held-out digits", "columns": ["", "accuracy"], "rows": compared},
        {"title": "\nprivacy", "columns": ["", ""], "rows": rows},
        {"title": "\nevents of the last sums", "columns": ["round", "what", ""], "rows": story[-8:]},
    ]
