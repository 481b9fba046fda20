"""Secure sums of what devices sell, over the real platform: answers to a survey, and gradients of a market."""

from __future__ import annotations

import math
import secrets
from typing import Any

import pytest
import torch

from coterie.agent.agent import Agent
from coterie.client import Platform
from coterie.errors import InvalidRequest
from coterie.privacy.ledger import Limit
from coterie.privacy.question_text import Question
from coterie.records import Task
from coterie_cli.question_task import create_survey
from tests.e2e.neighbours import SECURE, NeighbourFixture
from tests.e2e.real_platform import PATIENT, RealPlatform, model

QUESTION = Question("How long is your way to work, in minutes?", 0.0, 60.0)
ANSWERS = [12.0, 25.0, 31.0, 44.0, 18.0]
ESCROW, LEAST = 20_000_000, 0.04


def publisher_of(platform: RealPlatform) -> Platform:
    made = platform.admin.create_key("publisher", f"publisher {secrets.token_hex(4)}")
    platform.admin.deposit(f"publisher:{made.principal.subject}", 50_000_000, key="opening")
    return Platform(platform.processes.url, made.api_key, backoff=PATIENT)


def run(neighbours: NeighbourFixture, task: Task, agents: list[Agent]) -> Task:
    return neighbours.run_agents(agents, task.id, neighbours.platform.admin.start_task)


def test_secure_survey_answers_cost_what_terms_say_and_estimate_is_public(
    shared_platform: RealPlatform,
) -> None:
    neighbours = NeighbourFixture(shared_platform, f"q{secrets.token_hex(2)}-", len(ANSWERS))
    for home, answer in zip(neighbours.homes.values(), ANSWERS, strict=True):
        home.save_private_settings({"answers": {QUESTION.text: answer}})
    with publisher_of(shared_platform) as publisher:
        task = create_survey(
            publisher, "way to work", QUESTION, escrow_microcredits=ESCROW, min_devices=4, quorum=0.7,
            pricing={"constant": 5.0, "own_care": 0.5, "social_care": 0.25, "variance_low": LEAST}, sums=SECURE,
        )  # fmt: skip
    homes = list(neighbours.homes.values())
    shared_platform.meet(*zip(homes, homes[1:] + homes[:1], strict=True))  # what correlates is what is paid for
    agents = [Agent(home.folder, limit=Limit(50.0, 1e-5), poll_seconds=1.0) for home in homes]
    run(neighbours, task, agents)
    detail = shared_platform.admin.round(task.id, 1)
    result = detail.round.metrics
    payments = {payment.device_id: payment for payment in shared_platform.admin.payments(task=task.id)}
    assert len(payments) == result["answers"] == 5
    assert result["total_variance"] == pytest.approx(sum(payment.budget for payment in payments.values()))
    assert abs(result["estimate"] - sum(ANSWERS) / 5) < 6 * result["standard_error"]
    assert all(payment.amount_microcredits > 0 for payment in payments.values())
    assert all(part.metrics == {} for part in detail.participations)
    honest = 3  # of least 4, one may collude
    for name, home in neighbours.homes.items():
        (charge,) = [entry.charge for entry in home.ledger().history()]
        own = payments[neighbours.id(name)].budget
        assert charge.purpose.startswith("sum-")
        assert (charge.mechanism, charge.unit, charge.adjacency) == ("gaussian", "device", "left-out")
        assert charge.multiplier == pytest.approx(math.sqrt(own + (honest - 1) * LEAST), rel=1e-6)
        sums, alone = home.ledger().sums_alone()
        assert sums == 1
        assert alone == pytest.approx(1.0 / (2.0 * own))


def market(neighbours: NeighbourFixture, **sums: Any) -> Task:
    with publisher_of(neighbours.platform) as publisher:
        digest = publisher.upload_model(model())
        return publisher.create_task(
            name="secure market", preset="market", model_digests=[digest], rounds=2, min_devices=4, quorum=0.7,
            round_seconds=60.0, escrow_microcredits=ESCROW, privacy_unit="example",
            parameters={"pricing": {"accuracy_weight": 0.02}, "sums": SECURE | sums},
        )  # fmt: skip


def test_market_sells_masked_gradients_at_price_and_charge_of_clear_ones(shared_platform: RealPlatform) -> None:
    neighbours = NeighbourFixture(shared_platform, f"m{secrets.token_hex(2)}-", 4)
    with pytest.raises(InvalidRequest, match=r"set sums\.unverified_claims to true"):
        market(neighbours)
    task = market(neighbours, unverified_claims=True)
    agents = []
    for seed, home in enumerate(neighbours.homes.values()):
        home.save_private_settings({"costs": {"quadratic": 1.0, "linear": 0.04, "fixed": 0.0}})
        inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(seed))
        data = (inputs, (inputs[:, 0] > 0).long())
        agents.append(Agent(home.folder, torch.nn.Linear(4, 5), data, limit=Limit(100.0, 1e-5), poll_seconds=1.0))
    ended = run(neighbours, task, agents)
    assert ended.model_digests != task.model_digests
    payments = list(shared_platform.admin.payments(task=task.id))
    assert len(payments) == 8
    for payment in payments:
        (offer,) = [
            item
            for item in shared_platform.admin.prices(task.id, payment.round).offers
            if item.device_id == payment.device_id
        ]
        assert payment.amount_microcredits == math.floor(offer.price_microcredits * payment.budget)
    for name, home in neighbours.homes.items():
        charges = [entry.charge for entry in home.ledger().history()]
        assert [(c.unit, c.adjacency) for c in charges] == [("example", "replaced")] * 2
        assert all(charge.purpose.startswith("sum-") for charge in charges)
        sold = sorted(payment.budget for payment in payments if payment.device_id == neighbours.id(name))
        assert sorted(charge.rho for charge in charges) == pytest.approx(sold)
    parts = shared_platform.admin.round(task.id, 1).participations
    assert all((part.state, part.metrics) == ("delivered", {}) for part in parts), "norms stay hidden"
