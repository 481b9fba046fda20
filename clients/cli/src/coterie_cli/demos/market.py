"""The market: a publisher buys noised gradients; each of 10 devices decides how much privacy to sell."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.privacy.accounting import priced_charge
from coterie.records import ParticipationState, Payment, Quote, RoundState, Task, WorkItem
from coterie.strategies import Strategy, strategy_for
from coterie.strategies.context import RoundContext
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, starting_platform

if TYPE_CHECKING:
    from coterie.agent.agent import Agent
    from coterie.samples import Split
    from coterie_cli.progress import TaskProgress

OWNERS = ("Ada", "Grace", "Hedy", "Mary", "Rosalind")
DEVICES, ROUNDS = 10, 8
DEPOSIT, ESCROW = 5_000_000, 3_000_000
TRAINING = {"steps": 2, "learning_rate": 4.0, "clip_norm": 0.5}
PARAMETERS = {"pricing": {"accuracy_weight": 0.008}}
DEAR = {"costs": {"quadratic": 1.0, "linear": 0.04, "fixed": 0.0}, "computing": {"kappa": 1e-9}}
"""Costs of the device whose owner prices computing so high that it declines every round."""


class Garbage:
    """A device that claims a large budget and sends garbage."""

    def prepare(self, context: RoundContext) -> Delivery:
        """Make an update far beyond what clipping and the budget allow."""
        tensors = {name: np.full_like(value, 9.0) for name, value in context.model().items()}
        claimed = priced_charge(context.work.task_id, context.work.round, context.purpose, 1.0)
        return Delivery(tensors, float(context.samples), budget=1.0, privacy=(claimed,))


@register_demo("market", "10 devices sell privacy at a price; a publisher pays from escrow and gets a model")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie.samples import digits
    from coterie_cli.console import err

    began = time.monotonic()
    devices, rounds = options.devices or DEVICES, options.rounds or ROUNDS
    with ExitStack() as stack:
        with err.status("starting the platform …"):
            wait = stack.enter_context(starting_platform())
            split = digits(devices, seed=options.seed, concentration=3.0)
            demo = wait()
        agents = _devices(demo, split, devices, options)
        meet(demo, agents)
        publisher, account = publisher_with(demo, "hospital", DEPOSIT)
        stack.enter_context(publisher)
        task = _task(publisher, options.seed, rounds, devices)
        demo.run_agents(agents, task.id)
        accuracy = _follow(demo, task.id, split, options)
        demo.wait_for_agents()
        return _result(demo, task.id, account=account, agents=agents, accuracy=accuracy, began=began)


def publisher_with(demo: DemoPlatform, name: str, deposit: int) -> tuple[Platform, str]:
    """Create a publisher with credits; return its client and its account."""
    created = demo.admin.create_key("publisher", name)
    account = f"publisher:{created.principal.subject}"
    demo.admin.deposit(account, deposit, key="opening")
    return Platform(demo.processes.url, created.api_key, cache=demo.cache), account


def meet(demo: DemoPlatform, agents: list[Agent], meetings: int = 3) -> None:
    """Let neighbours in the list meet; prices include the privacy that leaks through trusted devices."""
    near = [(a, b) for (i, a), (j, b) in combinations(enumerate(agents), 2) if (j - i) in (1, 2, len(agents) - 1)]
    demo.meet(near, meetings)


def _devices(demo: DemoPlatform, split: Split, devices: int, options: DemoOptions) -> list[Agent]:
    from coterie_cli.demos.mesh import digits_regression

    tokens = {owner: demo.token_for(owner, devices) for owner in OWNERS}
    agents = []
    for index, shard in enumerate(split.shards):
        owner = OWNERS[index % len(OWNERS)]
        garbage = options.garbage_device and index == 0
        choose: Callable[[WorkItem], Strategy] = (lambda work: Garbage()) if garbage else strategy_for
        agent = demo.add_agent(
            tokens[owner],
            f"{owner.lower()}-{index // len(OWNERS) + 1}",
            kind="simulated",
            model=digits_regression(),
            data=shard,
            test_data=split.test,
            public_test_data=True,
            choose=choose,
        )
        if index == devices - 1 and devices > 2:
            agent.home.save_private_settings(DEAR)
        agents.append(agent)
    return agents


def _task(publisher: Platform, seed: int, rounds: int, devices: int) -> Task:
    from coterie.learning.training import model_bytes
    from coterie_cli.demos.mesh import digits_regression

    return publisher.create_task(
        name="market",
        preset="market",
        model_digests=[publisher.upload_model(model_bytes(digits_regression()))],
        rounds=rounds,
        min_devices=max(1, devices // 2),
        round_seconds=60.0,
        training=TRAINING,
        parameters=PARAMETERS,
        escrow_microcredits=ESCROW,
        seed=seed,
        privacy_unit="example",
        description="Recognise handwritten digits; every example's privacy is paid for",
    )


def _follow(demo: DemoPlatform, task_id: str, split: Split, options: DemoOptions) -> dict[int, float]:
    """Start the task; measure each new model on held-out digits."""
    from coterie.learning.torch_learner import TorchLearner
    from coterie.learning.training import load_model
    from coterie_cli.demos.mesh import digits_regression
    from coterie_cli.live import follow
    from coterie_cli.progress import watch

    demo.start_task(task_id)
    judge, accuracy = TorchLearner(digits_regression(), split.test), dict[int, float]()

    def measure(progress: TaskProgress) -> None:
        for number, round in progress.rounds.items():
            if round.state == RoundState.DONE and number not in accuracy:
                judge.load(load_model(demo.admin.download_model(round.model_digests[0])))
                accuracy[number] = judge.evaluate()["accuracy"]

    if options.quiet:
        for progress in watch(demo.admin, task_id):
            measure(progress)
    else:
        follow(demo.admin, task_id, measure)
    return accuracy


def _result(
    demo: DemoPlatform, task_id: str, account: str, agents: list[Agent], accuracy: dict[int, float], began: float
) -> dict[str, Any]:
    platform = demo.admin
    task, paid = platform.task(task_id), list(platform.payments(task=task_id))
    rounds = [_round(platform, task_id, number, accuracy[number], paid) for number in sorted(accuracy)]
    last = platform.prices(task_id, max(accuracy)) if accuracy else None
    risks = _risks(last) if last else {}
    devices = [_device(platform, agent, paid) | risks.get(agent.identity.id, {}) for agent in agents]
    refusals = [event for event in platform.events(task_id) if event.kind.startswith("update.")]
    total = sum(payment.amount_microcredits for payment in paid)
    points = 100.0 * max(accuracy.values(), default=0.0)
    money = {
        "paid_microcredits": total,
        "publisher_microcredits": platform.account(account).balance_microcredits,
        "escrow_microcredits": platform.account(f"escrow:{task_id}").balance_microcredits,
        "microcredits_per_accuracy_point": total / points if points else 0.0,
        "book": platform.verify_book().to_dict(),
    }
    return {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "accuracy": accuracy[max(accuracy)] if accuracy else 0.0,
        "rounds": rounds,
        "devices": devices,
        "money": money,
        "refusals": [event.message for event in refusals],
        "tables": _tables(rounds, devices, money, [event.message for event in refusals]),
        "seconds": time.monotonic() - began,
    }


def _round(platform: Platform, task_id: str, number: int, accuracy: float, paid: list[Payment]) -> dict[str, Any]:
    prices = platform.prices(task_id, number)
    own = [payment for payment in paid if payment.round == number]
    parts = platform.round(task_id, number).participations
    return {
        "round": number,
        "status": prices.status,
        "price_microcredits": prices.offers[0].price_microcredits,
        "expected_budget": sum(offer.expected for offer in prices.offers),
        "sold_budget": sum(payment.budget for payment in own),
        "paid_microcredits": sum(payment.amount_microcredits for payment in own),
        "delivered": sum(part.state == ParticipationState.DELIVERED for part in parts),
        "declined": sum(part.state == ParticipationState.DECLINED for part in parts),
        "accuracy": accuracy,
    }


def _risks(quote: Quote) -> dict[str, dict[str, float]]:
    """Return the terms of the last price by device: direct ties, leakage along them, weight."""
    columns = [quote.details.get(name) or () for name in ("ties", "leaked", "accuracy_weights")]
    rows = zip(quote.offers, *columns, strict=False)
    return {offer.device_id: {"ties": ties, "leaked": leaked, "weight": w} for offer, ties, leaked, w in rows}


def _device(platform: Platform, agent: Agent, paid: list[Payment]) -> dict[str, Any]:
    own = [payment for payment in paid if payment.device_id == agent.identity.id]
    spent = agent.home.ledger().spent()
    return {
        "name": agent.identity.name,
        "id": agent.identity.id,
        "samples": agent.samples,
        "rounds": len(own),
        "budget": sum(payment.budget for payment in own),
        "paid_microcredits": sum(payment.amount_microcredits for payment in own),
        "epsilon": spent.epsilon,
        "delta": spent.delta,
        "effort": dict(agent.home.private_settings().get("effort") or {}),
        "platform_epsilon": platform.privacy(agent.identity.id, delta=spent.delta).epsilon,
    }


def _tables(
    rounds: list[dict[str, Any]],
    devices: list[dict[str, Any]],
    money: dict[str, Any],
    refusals: list[str],
) -> list[dict[str, Any]]:
    book = money["book"]
    tables: list[dict[str, Any]] = [
        {
            "title": "rounds",
            "columns": ["round", "price per ρ", "ρ sold (expected)", "paid", "delivered", "declined", "accuracy"],
            "rows": [
                [
                    r["round"],
                    _credits(r["price_microcredits"]),
                    f"{r['sold_budget']:.3f} ({r['expected_budget']:.3f})",
                    _credits(r["paid_microcredits"]),
                    r["delivered"],
                    r["declined"],
                    f"{r['accuracy']:.1%}",
                ]
                for r in rounds
            ],
        },
        {
            "title": "\ndevices (leaks: ρ leaked along direct ties if others sell 1; weight: of its noise)",
            "columns": ["device", "samples", "ties", "leaks", "weight", "rounds", "ρ sold", "earned", "ε spent"],
            "rows": [
                [
                    d["name"],
                    d["samples"],
                    d.get("ties", ""),
                    f"{d['leaked']:.2f}" if "leaked" in d else "",
                    f"{d['weight']:.2g}" if "weight" in d else "",
                    d["rounds"],
                    f"{d['budget']:.3f}",
                    _credits(d["paid_microcredits"]),
                    f"{d['epsilon']:.2f}",
                ]
                for d in devices
            ],
        },
        {
            "title": "\nmoney, in credits",
            "columns": ["what", "amount"],
            "rows": [
                ["paid to devices", _credits(money["paid_microcredits"])],
                ["left in escrow", _credits(money["escrow_microcredits"])],
                ["back with the publisher", _credits(money["publisher_microcredits"])],
                ["per accuracy point", _credits(round(money["microcredits_per_accuracy_point"]))],
                [f"the ledger ({book['entries']} entries)", "is sound" if book["sound"] else "IS NOT SOUND"],
            ],
        },
    ]
    measured = [d for d in devices if d["effort"]]
    if measured:
        tables.append(
            {
                "title": "\ncomputing costs, measured and kept by the device that has a price for them",
                "columns": ["device", "cycles a sample", "clock", "so it"],
                "rows": [
                    [
                        d["name"],
                        f"{d['effort']['cycles_per_sample']:.3g}",
                        f"{d['effort']['hertz'] / 1e9:.2f} GHz",
                        f"sold in {d['rounds']} rounds" if d["rounds"] else "declined: no offer covers it",
                    ]
                    for d in measured
                ],
            }
        )
    if refusals:
        rows = [[message] for message in dict.fromkeys(refusals)]
        tables.append({"title": "\nrefused and suspicious updates", "columns": ["why"], "rows": rows})
    return tables


def _credits(amount_microcredits: int) -> str:
    return f"{amount_microcredits / 1e6:.6f}"
