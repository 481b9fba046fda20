"""A survey: 20 devices whose owners know each other answer a question, each with the noise that its offer buys."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.parameters.pricing import CorrelatedParameters
from coterie.privacy.question_text import Question
from coterie.records import ParticipationState, Quote, Task, Verification
from coterie.records.reading import plain
from coterie_cli.demos import DemoOptions, register_demo
from coterie_cli.demos.demo_platform import DemoPlatform, running_platform
from coterie_cli.demos.market import meet, publisher_with

if TYPE_CHECKING:
    from coterie.agent.agent import Agent

DEVICES = 20
DEPOSIT, ESCROW = 100_000_000, 60_000_000
QUESTION = Question("How warm is your kitchen, in °C?", 15.0, 30.0)
PRICING = {"constant": 5.0, "own_care": 0.5, "social_care": 0.25}
MEETINGS = 20
"""Meetings of neighbours; with fewer, trust and so the assumed correlation of answers are small."""
ALIKE = 2.0
"""Correlation w of the first two kitchens, which share a wall; the publisher declares it."""
ANXIOUS = {"own": 5.0, "social": 0.25}
"""Values of the owner for whom the offer is too low."""


@dataclass(frozen=True, slots=True)
class Respondent:
    """A device, its answer and its payment."""

    name: str
    answer: float
    state: ParticipationState
    deviation: float
    paid_microcredits: int
    epsilon: float


@register_demo("survey", "20 devices answer a question with noise and are paid; the estimate and its error")
def run(options: DemoOptions) -> dict[str, Any]:
    """Run the demo; return its results as plain values."""
    from coterie_cli.console import err
    from coterie_cli.question_task import create_survey

    began = time.monotonic()
    devices = options.devices or DEVICES
    random = np.random.default_rng(options.seed)
    answers = np.round(random.normal(21.5, 2.0, devices), 1).tolist()
    with ExitStack() as stack:
        with err.status("starting the platform …"):
            demo = stack.enter_context(running_platform())
        agents = _devices(demo, answers)
        meet(demo, agents, MEETINGS)
        publisher, account = publisher_with(demo, "weather office", DEPOSIT)
        stack.enter_context(publisher)
        task = create_survey(
            publisher,
            "kitchens",
            QUESTION,
            escrow_microcredits=ESCROW,
            pricing=PRICING | _alike(agents),
            min_devices=max(1, devices // 2),
            round_seconds=60.0,
            seed=options.seed,
        )
        demo.run_task(agents, task.id, quiet=options.quiet)
        return _result(demo, task.id, account=account, agents=agents, answers=answers, began=began)


def _alike(agents: list[Agent]) -> dict[str, Any]:
    wall = [agent.identity.id for agent in agents[:2]]
    return {"alike": [{"devices": wall, "correlation": ALIKE}]} if len(wall) == 2 else {}


def _devices(demo: DemoPlatform, answers: list[float]) -> list[Agent]:
    agents = []
    for number, answer in enumerate(answers, start=1):
        token = demo.token_for(f"household {number}", 1)
        agent = demo.add_agent(token, f"kitchen-{number}", kind="simulated")
        care = {"care": ANXIOUS} if number == len(answers) and number > 2 else {}
        agent.home.save_private_settings({"answers": {QUESTION.text: answer}} | care)
        agents.append(agent)
    return agents


def _result(
    demo: DemoPlatform, task_id: str, account: str, agents: list[Agent], answers: list[float], began: float
) -> dict[str, Any]:
    from coterie_cli.question_task import survey_result

    platform, task = demo.admin, demo.admin.task(task_id)
    estimate = survey_result(platform, task_id)
    states = {part.device_id: part.state for part in platform.round(task_id, 1).participations}
    paid = {payment.device_id: payment for payment in platform.payments(task=task_id)}
    devices = []
    for agent, answer in zip(agents, answers, strict=True):
        payment, spent = paid.get(agent.identity.id), agent.home.ledger().spent()
        devices.append(
            Respondent(
                name=agent.identity.name,
                answer=answer,
                state=states[agent.identity.id],
                deviation=0.0 if payment is None else payment.budget**0.5 * QUESTION.span,
                paid_microcredits=0 if payment is None else payment.amount_microcredits,
                epsilon=spent.epsilon,
            )
        )
    truth = [device.answer for device in devices if device.state == ParticipationState.DELIVERED]
    book = platform.verify_book()
    result = {
        "task": task_id,
        "state": task.state,
        "reason": task.reason,
        "truth": float(np.mean(truth)) if truth else 0.0,
        "result": estimate,
        "devices": plain(devices),
        "paid_microcredits": sum(device.paid_microcredits for device in devices),
        "publisher_microcredits": platform.account(account).balance_microcredits,
        "book": book.to_dict(),
        "seconds": time.monotonic() - began,
    }
    if not estimate:
        return result | {"headline": "no device answered", "tables": []}
    headline = f"{estimate['estimate']:.2f} ± {estimate['standard_error']:.2f} °C"
    risk = _risk_table(platform.prices(task_id, 1), task, agents)
    return result | {"headline": headline, "tables": [*_tables(result, estimate, devices, book), risk]}


def _risk_table(quote: Quote, task: Task, agents: list[Agent]) -> dict[str, Any]:
    """Make the table of the offers' terms: correlation, care and the adversary's knowledge."""
    pricing, details = CorrelatedParameters.of(task.specification.parameters), quote.details
    names = {agent.identity.id: agent.identity.name for agent in agents}
    hidden = [float(value) for value in details["hidden_variances"]]
    correlation = pricing.correlation
    common = ["from trust" if correlation is None else f"{correlation:g}"]
    common += [
        f"{group.correlation:g} between {' and '.join(names[device] for device in group.devices)}"
        for group in pricing.alike
    ]
    known = ", ".join(names[item] for item in details.get("known", ()))
    return {
        "title": "\nterms of the offers",
        "columns": ["", ""],
        "rows": [
            ["w, correlation of two answers", ", ".join(common)],
            ["s, care for oneself and for friends", f"{pricing.own_care:g} and {pricing.social_care:g}"],
            ["the adversary knows the answer of", known or "no device"],
            ["variance that hides an answer from it", f"{min(hidden):.2f} to {max(hidden):.2f}"],
        ],
    }


def _tables(
    result: dict[str, Any], estimate: dict[str, float], devices: list[Respondent], book: Verification
) -> list[dict[str, Any]]:
    return [
        {
            "title": QUESTION.text,
            "columns": ["", "°C"],
            "rows": [
                ["estimate", f"{estimate['estimate']:.2f}"],
                ["truth (known to the devices alone)", f"{result['truth']:.2f}"],
                ["standard error of the noise", f"{estimate['standard_error']:.2f}"],
                ["error at most, 95 %", f"{estimate['interval']:.2f}"],
                ["error at most, 95 % (Chebyshev)", f"{estimate['error_bound']:.2f}"],
            ],
        },
        {
            "title": "\ndevices",
            "columns": ["device", "answer (private)", "noise, °C", "earned", "ε spent", "state"],
            "rows": [
                [
                    d.name,
                    f"{d.answer:.1f}",
                    f"{d.deviation:.1f}",
                    f"{d.paid_microcredits / 1e6:.6f}",
                    f"{d.epsilon:.2f}",
                    d.state,
                ]
                for d in devices
            ],
        },
        {
            "title": "\nmoney, in credits",
            "columns": ["what", "amount"],
            "rows": [
                ["paid to devices", f"{result['paid_microcredits'] / 1e6:.6f}"],
                ["back with the publisher", f"{result['publisher_microcredits'] / 1e6:.6f}"],
                [f"the ledger ({book.entries} entries)", "is sound" if book.sound else "IS NOT SOUND"],
            ],
        },
    ]
