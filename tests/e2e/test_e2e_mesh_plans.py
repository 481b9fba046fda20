"""A mesh task planned as BeTTa or as each of its rivals, with real agents: who writes to whom, and who adds noise."""

from __future__ import annotations

import threading
from itertools import combinations

import pytest
import torch

from coterie.agent import Agent
from coterie.home import introduce
from coterie.privacy.ledger import Limit
from coterie.training import model_bytes
from tests.e2e.real_platform import RealPlatform

ROUNDS, EPSILON = 3, 0.25
PLANS = {"betta": None, "social": 5, "dabmd": 5, "pdoo": 5, "ring": 5, "expander": 10, "complete": 10}
"""Links among five devices: Ada's three trust each other, Grace's two do, and one of each has met the other. BeTTa may
leave some of them out."""


@pytest.fixture(scope="module")
def street(shared_platform: RealPlatform, tmp_path_factory: pytest.TempPathFactory) -> list[Agent]:
    """Ada's three devices and Grace's two, all in each other's circles."""
    found, draw = [], torch.Generator().manual_seed(1)
    for owner, count in (("Ada of the plans", 3), ("Grace of the plans", 2)):
        token = shared_platform.admin.issue_token(shared_platform.admin.create_owner(owner).id, uses=count).token
        for number in range(count):
            inputs = torch.randn(60, 4, generator=draw)
            found.append(
                Agent.register(
                    shared_platform.processes.url, token, name=f"{owner[0]}{number}",
                    home=tmp_path_factory.mktemp("home"), model=torch.nn.Linear(4, 3),
                    data=(inputs, inputs[:, :3].argmax(dim=1)), limit=Limit(1e6, 1e-5, allow_raw=True),
                    cache=shared_platform.cache, poll_seconds=1.0,
                )
            )  # fmt: skip
    introduce(*(agent.home for agent in found))
    shared_platform.meet((found[2].home, found[3].home))
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_a_live_mesh_trains_by_each_plan(plan: str, shared_platform: RealPlatform, street: list[Agent]) -> None:
    admin = shared_platform.admin
    task = admin.create_task(
        name=f"mesh {plan}",
        preset="mesh",
        model_digests=[admin.upload_model(model_bytes(torch.nn.Linear(4, 3)))],
        rounds=ROUNDS,
        min_devices=len(street),
        quorum=1.0,
        auto_start=True,
        round_seconds=120.0,
        parameters={"topology": {"plan": plan, "times": "declared"}, "privacy": {"epsilon": EPSILON}},
    ).id
    before = {agent.identity.id: agent.home.ledger().spent() for agent in street}

    def work(agent: Agent) -> None:
        agent.join(task)
        agent.run()

    threads = [threading.Thread(target=work, args=(agent,), daemon=True) for agent in street]
    for thread in threads:
        thread.start()
    ended = admin.wait_for_end(task)
    for thread in threads:
        thread.join(60.0)
    assert ended.state == "finished", f"{ended.reason}\n{shared_platform.logs()}"
    made = admin.plan(task)
    links = {frozenset((seat.device_id, n.device_id)) for seat in made.seats for n in seat.neighbours}
    assert len(links) == PLANS[plan] or plan == "betta"
    ids = [agent.identity.id for agent in street]
    trusted = {frozenset(pair) for mine in (ids[:3], ids[3:], ids[2:4]) for pair in combinations(mine, 2)}
    strangers = set[str]().union(*(links - trusted))
    noised = {seat.device_id for seat in made.seats if seat.noised}
    assert noised == (set(ids) if plan == "pdoo" else strangers)
    assert bool(noised) == (plan in ("pdoo", "ring", "expander", "complete"))
    for agent in street:
        # The first letter holds the model everybody has; each later one is a release, with noise or bare.
        was, now = before[agent.identity.id], agent.home.ledger().spent()
        if agent.identity.id in noised:
            assert 0.0 < now.epsilon - was.epsilon <= EPSILON * (ROUNDS - 1)
            assert now.raw_releases == was.raw_releases
        else:
            assert (now.epsilon, now.raw_releases) == (was.epsilon, was.raw_releases + ROUNDS - 1)
    assert {r.metrics["heard"] for r in admin.rounds(task)} == {1.0}
