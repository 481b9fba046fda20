"""Secure sums inside clusters, over the real platform: neither head nor platform sees a member's update."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from coterie.agent.agent import Agent
from coterie.agent.home import DeviceHome
from coterie.agent.report import Delivery
from coterie.strategies.clusters import Clusters
from coterie.strategies.context import RoundContext
from tests.e2e.neighbours import NeighbourFixture
from tests.e2e.real_platform import RealPlatform
from tests.e2e.secure_device import LIMIT, Learner


class Known(Learner):
    """Moves every number by the same amount."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def train(self, recipe: Any, seed: int) -> None:
        self.state = {name: value + np.float32(self.step) for name, value in self.state.items()}


class Stepping:
    """The clusters' own procedure with that learner; records the models it loads and the updates it returns."""

    def __init__(self, step: float) -> None:
        self.step, self.seen = step, list[tuple[str, str, float]]()

    def prepare(self, context: RoundContext) -> Delivery:
        training: Any = Known(self.step)
        delivery = Clusters().prepare(replace(context, training=training))
        self.seen.append((context.work.role, delivery.form, delivery.weight))
        return delivery


def agent_of(home: DeviceHome, working: Stepping) -> Agent:
    return Agent(home.folder, samples=10, limit=LIMIT, poll_seconds=1.0, choose=lambda work: working)


def test_platform_gets_the_cluster_sum_and_members_send_heads_nothing(
    shared_platform: RealPlatform,
) -> None:
    neighbours = NeighbourFixture(shared_platform, f"c{secrets.token_hex(2)}-", 4)
    homes = list(neighbours.homes.values())
    shared_platform.meet(*itertools.combinations(homes, 2))
    steps = [0.01, 0.02, 0.03, 0.06]
    working = [Stepping(step) for step in steps]
    agents = [agent_of(home, element) for home, element in zip(homes, working, strict=True)]
    task = neighbours.publish(
        preset="clusters", privacy="trust", incentive="none", rounds=1, quorum=0.7, round_seconds=60.0, auto_start=False
    )
    ended = neighbours.run_agents(agents, task, shared_platform.admin.start_task)
    assignments = shared_platform.admin.plan(task).assignments
    assert sorted(assignment.role for assignment in assignments) == ["head", "member", "member", "member"]
    assert [[form for _, form, _ in item.seen] for item in working] == [["masked"]] * 4
    weights = [item.seen[0][2] for item in working]
    mean = float(np.average(steps, weights=weights))
    made = load(shared_platform.admin.download_model(ended.model_digests[0]).read_bytes())
    begun = load(
        shared_platform.admin.download_model(
            shared_platform.admin.task(task).specification.model_digests[0]
        ).read_bytes()
    )
    for name, value in made.items():
        assert value - begun[name] == pytest.approx(mean, abs=1e-5)
    for home in homes:
        (charge,) = [entry.charge for entry in home.ledger().history(task)]
        assert charge.purpose.startswith("sum-")
        assert charge.mechanism == "raw", "trusted clerks, hence no noise: the owner allows raw"
