"""Contributions end to end: devices deliver, a publisher's evaluator answers over REST, pots are paid by worth."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from coterie.agent.agent import Agent
from coterie.agent.report import Delivery
from coterie.client import Platform
from coterie.learning.evaluation import Tensors, evaluate
from coterie.records import WorkItem
from coterie.strategies.context import RoundContext
from tests.e2e.real_platform import PATIENT, SHAPES, RealPlatform, model, real_platform

POT = 1_000_003
STEPS = {"right": 1.0, "half": 0.5, "wrong": -1.0}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    with real_platform(tmp_path_factory.mktemp("contributions")) as result:
        yield result


class Towards:
    """Moves every number by a fixed step."""

    def __init__(self, step: float) -> None:
        self._step = step

    def prepare(self, context: RoundContext) -> Delivery:
        change = {name: np.full(shape, self._step, np.float32) for name, shape in SHAPES.items()}
        return Delivery(change, float(context.samples))

    def __call__(self, work: WorkItem) -> Towards:
        return self


def worth(tensors: Tensors) -> float:
    """The nearer the bias is to 1, the better."""
    return -float(np.abs(tensors["bias"] - 1.0).mean())


def test_a_rounds_pot_is_paid_by_worth_to_the_last_microcredit(platform: RealPlatform) -> None:
    """One device goes the right way, one half as far, one the wrong way: the first two share the whole pot."""
    made = platform.admin.create_key("publisher", "evaluating")
    platform.admin.deposit(made.principal.subject, 10 * POT, key="opening")
    homes = platform.register(*STEPS)
    agents = {
        name: Agent(home.folder, samples=10, poll_seconds=1.0, choose=Towards(STEPS[name]))
        for name, home in homes.items()
    }
    ids = {name: agent.identity.id for name, agent in agents.items()}
    with Platform(platform.processes.url, made.api_key, backoff=PATIENT) as publisher:
        task = publisher.create_task(
            name="valued",
            preset="fedavg",
            incentive="contribution",
            model_digests=[publisher.upload_model(model())],
            rounds=2,
            min_devices=3,
            quorum=1.0,
            auto_start=True,
            escrow_microcredits=2 * POT,
            parameters={"pricing": {"round_microcredits": POT}},
        )
        for agent in agents.values():
            agent.join(task.id)
        threads = [threading.Thread(target=agent.run) for agent in agents.values()]
        for thread in threads:
            thread.start()
        seen: list[tuple[int, int, int]] = []
        assert evaluate(publisher, task.id, worth, on_round=lambda *arguments: seen.append(arguments)) == 2
        for thread in threads:
            thread.join(60)
        assert seen == [(1, 3, 8), (2, 3, 8)]
        values = {
            contribution.device_id: contribution.value for contribution in publisher.contributions(task.id, round=1)
        }
        assert values[ids["right"]] > values[ids["half"]] > 0 > values[ids["wrong"]]
        first = {p.device_id: p.amount_microcredits for p in publisher.payments(task=task.id) if p.round == 1}
    assert sum(first.values()) == POT
    assert first.keys() == {ids["right"], ids["half"]}
    share = values[ids["right"]] / (values[ids["right"]] + values[ids["half"]])
    assert first[ids["right"]] == pytest.approx(POT * share, abs=1)
    assert platform.admin.verify_book().sound
    with platform.as_device(homes["half"]) as device:
        assert [contribution.device_id for contribution in device.contributions(task.id)] == [ids["half"]]
