"""A mesh: 8 devices of 3 owners who know each other a little learn to read digits without any central model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.agent.home import introduce
from coterie.privacy.ledger import Limit
from coterie.records import Object, Plan, RoundState, Task
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, starting_platform

if TYPE_CHECKING:
    import torch

    from coterie.agent.agent import Agent
    from coterie.samples import Split

ROUNDS = 20
CAST = (
    # owner, device, link class, seconds per sample (a Raspberry Pi 4, 3 or 2, as in [BETTA] §IV-A)
    ("Ada", "ada-phone", "wifi", 14 / 32),
    ("Ada", "ada-laptop", "wifi", 32 / 32),
    ("Ada", "ada-sensor", "lora", 77 / 32),
    ("Grace", "grace-phone", "wifi", 14 / 32),
    ("Grace", "grace-laptop", "wifi", 32 / 32),
    ("Grace", "grace-sensor", "lora", 32 / 32),
    ("Hedy", "hedy-phone", "wifi", 14 / 32),
    ("Hedy", "hedy-sensor", "lora", 77 / 32),
)
FRIENDS = (("ada-laptop", "grace-laptop"), ("grace-sensor", "hedy-sensor"))
"""Trusting pairs of devices with different owners; devices of one owner always trust each other."""
LATE = "ada-phone"
"""The device whose samples arrive during the task: two thirds at the start, then some after each round."""
MEETINGS = 16
EPSILON, CLIP = 2.0, 20.0
PARAMETERS = {
    "topology": {"times": "declared", "basic_batch": 96},
    "privacy": {"epsilon": EPSILON, "clip": CLIP},
}
TRAINING = {"learning_rate": 1.0, "learning_rate_decay": 0.99}


@register_demo("mesh", "8 devices of 3 owners learn from neighbours alone, without a central model; two add noise")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie.samples import digits
    from coterie_cli.console import err

    began = time.monotonic()
    rounds = options.rounds or ROUNDS
    with ExitStack() as stack:
        with err.status("starting the platform …"):
            wait = stack.enter_context(starting_platform(planners=True))
            split = digits(len(CAST), seed=options.seed, concentration=3.0)
            demo = wait()
        agents = _devices(demo, split, rounds)
        _meet(demo, agents)
        task = _task(demo, options.seed, rounds)
        demo.run_task(agents, task.id, quiet=options.quiet)
        return _result(demo, task.id, agents, split, began)


def digits_regression() -> torch.nn.Module:
    """Make a softmax regression on the digits, 64 → 10, starting from 0."""
    import torch

    module = torch.nn.Linear(64, 10)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    return module


def _devices(demo: DemoPlatform, split: Split, rounds: int) -> list[Agent]:
    """Register all devices; each owner allows raw parameters to trusted devices and ε per noised round."""
    tokens = {owner: demo.token_for(owner, len(CAST)) for owner in dict.fromkeys(item[0] for item in CAST)}
    return [
        demo.add_agent(
            tokens[owner],
            name,
            kind="simulated",
            profile={"capabilities": {"link_class": link, "seconds_per_sample": seconds}},
            model=digits_regression(),
            data=_arriving(shard, rounds) if name == LATE else shard,
            test_data=split.test,
            public_test_data=True,
            limit=Limit(EPSILON * rounds, 1e-5, allow_raw=True),
        )
        for (owner, name, link, seconds), shard in zip(CAST, split.shards, strict=True)
    ]


def _arriving(
    shard: tuple[torch.Tensor, torch.Tensor], rounds: int
) -> Iterator[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Yield two thirds of the samples, then the others in equal parts."""
    samples = list(zip(*shard, strict=True))
    first = 2 * len(samples) // 3
    for start, stop in pairwise([0, *np.linspace(first, len(samples), rounds, dtype=int).tolist()]):
        yield samples[start:stop]


def _hindsight(agent: Agent, task_id: str, shard: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    """Return a device's online loss and that of the best fixed model in hindsight; only the device knows them."""
    from coterie.learning.best_fixed_model import best_fixed_model
    from coterie.learning.learner import Guarded
    from coterie.learning.models import Flat
    from coterie.learning.torch_learner import TorchLearner
    from coterie.strategies.device_state import DeviceState

    state, learner = DeviceState.load(agent.home.memory(task_id)), Guarded(TorchLearner(digits_regression(), shard))
    if state is None or not state.growth:
        return {}
    flat = Flat.of(learner.parameters(), learner.trained())
    fixed = best_fixed_model(learner, flat, state.learner.parameters, state.seen())
    return {
        "samples_first": state.growth[0][1],
        "samples_last": state.growth[-1][1],
        "online_loss": state.online_loss,
        "best_fixed_loss": fixed,
        "regret": state.online_loss - fixed,
    }


def _hindsight_table(losses: dict[str, float]) -> dict[str, Any]:
    rows = [
        ["samples at first", f"{losses['samples_first']:.0f}"],
        ["samples in the last round", f"{losses['samples_last']:.0f}"],
        ["online loss", f"{losses['online_loss']:.2f}"],
        ["loss of the best fixed model in hindsight", f"{losses['best_fixed_loss']:.2f}"],
        ["regret", f"{losses['regret']:.2f}"],
    ]
    return {
        "title": f"\n{LATE}, whose data arrive during the task (only the device knows)",
        "columns": ["", ""],
        "rows": rows,
    }


def _meet(demo: DemoPlatform, agents: list[Agent]) -> None:
    """Let devices of one owner and friends verify keys, and let friends meet well."""
    known = {agent.identity.name: agent for agent in agents}
    for owner in dict.fromkeys(item[0] for item in CAST):
        introduce(*(known[name].home for whose, name, *_ in CAST if whose == owner))
    for pair in FRIENDS:
        introduce(*(known[name].home for name in pair))
    demo.meet([(known[first], known[second]) for first, second in FRIENDS], MEETINGS)


def _task(demo: DemoPlatform, seed: int, rounds: int) -> Task:
    from coterie.learning.training import model_bytes

    return demo.admin.create_task(
        name="mesh",
        preset="mesh",
        model_digests=[demo.admin.upload_model(model_bytes(digits_regression()))],
        rounds=rounds,
        min_devices=len(CAST) - 2,
        round_seconds=30.0,
        training=TRAINING,
        parameters=PARAMETERS,
        seed=seed,
        privacy_unit="example",
        description="Recognise handwritten digits; models stay on the devices",
    )


def _result(demo: DemoPlatform, task_id: str, agents: list[Agent], split: Split, began: float) -> dict[str, Any]:
    task, plan = demo.admin.task(task_id), demo.admin.plan(task_id)
    rounds = [round for round in demo.admin.rounds(task_id) if round.state == RoundState.DONE]
    details = plan.details
    history = [
        {
            "round": round.number,
            "accuracy": round.metrics["accuracy"],
            "seconds": round.done_at - round.opened_at,
            "simulated_seconds": round.number * plan.round_seconds,
        }
        for round in rounds
    ]
    last = demo.admin.round(task_id, rounds[-1].number).participations if rounds else []
    accuracy = {part.device_id: part.metrics.get("accuracy", 0.0) for part in last}
    late = next(number for number, agent in enumerate(agents) if agent.identity.name == LATE)
    hindsight = _hindsight(agents[late], task_id, split.shards[late])
    return {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "accuracy": history[-1]["accuracy"] if history else 0.0,
        "rounds": history,
        "plan": {"version": plan.version, "round_seconds": plan.round_seconds, **details},
        "devices": [
            {
                "name": agent.identity.name,
                "accuracy": accuracy.get(agent.identity.id, 0.0),
                "noised": agent.identity.id in details["noised"],
                "epsilon": agent.home.ledger().spent().epsilon,
            }
            for agent in agents
        ],
        "arriving": {"name": LATE, **hindsight},
        "tables": [
            *_tables(plan, details, history, agents, accuracy),
            *([_hindsight_table(hindsight)] if hindsight else []),
        ],
        "seconds": time.monotonic() - began,
    }


def _tables(
    plan: Plan,
    details: Object,
    history: list[dict[str, Any]],
    agents: list[Agent],
    accuracy: dict[str, float],
) -> list[dict[str, Any]]:
    names = details["names"]
    assignments = {assignment.device_id: assignment for assignment in plan.assignments}
    links = [
        [
            " – ".join(names[end] for end in link["between"]),
            "trusted" if link["trusted"] else "noised",
            f"{link['seconds']:.3g} s",
            link["step"],
        ]
        for link in details["links"]
    ]
    devices = []
    for agent in agents:
        assignment, spent = assignments[agent.identity.id], agent.home.ledger().spent()
        devices.append(
            [
                agent.identity.name,
                len(assignment.neighbours),
                assignment.batch_size,
                "yes" if assignment.noised else "",
                f"{spent.epsilon:.3g}",
                spent.raw_releases,
                f"{accuracy.get(agent.identity.id, 0.0):.1%}",
            ]
        )
    own = {"round_seconds": plan.round_seconds, "pseudo_training_time": details["pseudo_training_time"]}
    noised = float(len(details["noised"]))
    plans = {"BeTTa's plan": {**own, "noised": noised}, **details["baselines"]}
    shown = [item for item in history if item["round"] == 1 or item["round"] % 5 == 0]
    return [
        {"title": "the plan's links", "columns": ["link", "letters", "time (simulated)", "added by"], "rows": links},
        {
            "title": "\ndevices",
            "columns": ["device", "neighbours", "batch", "adds noise", "ε spent", "raw letters", "accuracy"],
            "rows": devices,
        },
        {
            "title": "\nround time and pseudo training time of other topologies (simulated)",
            "columns": ["topology", "a round", "to train (pseudo)", "noisy devices", "why not"],
            "rows": [
                [
                    name,
                    f"{p['round_seconds']:.1f} s",
                    f"{p['pseudo_training_time']:.0f} s",
                    int(p["noised"]),
                    p.get("why_not", ""),
                ]
                for name, p in plans.items()
            ],
        },
        {
            "title": "\nmean accuracy of the devices' own models",
            "columns": ["round", "accuracy", "clock (simulated)", "here"],
            "rows": [
                [
                    item["round"],
                    f"{item['accuracy']:.1%}",
                    f"{item['simulated_seconds']:.0f} s",
                    f"{item['seconds']:.2f} s",
                ]
                for item in shown
            ],
        },
    ]
