"""A mesh task planned as BeTTa or as each of its rivals, with real agents: who writes to whom, and who adds noise."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from coterie.agent.agent import Agent
from coterie.agent.home import introduce
from coterie.learning.training import model_bytes
from coterie.privacy.ledger import Limit
from coterie.records import Plan
from coterie_cli.main import app
from coterie_lab.datasets.city import build_city
from coterie_lab.datasets.gowalla import EDGES
from coterie_lab.main import app as lab
from tests.e2e.real_platform import RealPlatform
from tests.unit.coterie_lab.city_files import write_city

ROUNDS, EPSILON = 3, 0.25
PLANS = {"betta": None, "social": 5}
"""Links among five devices: Ada's three trust each other, Grace's two do, and one of each has met the other. BeTTa may
leave some of them out."""


@pytest.fixture(scope="module")
def neighbours(shared_platform: RealPlatform, tmp_path_factory: pytest.TempPathFactory) -> list[Agent]:
    """Ada's three devices and Grace's two, all in each other's circles."""
    result, draw = [], torch.Generator().manual_seed(1)
    for owner, count in (("Ada of the plans", 3), ("Grace of the plans", 2)):
        token = shared_platform.admin.issue_token(shared_platform.admin.create_owner(owner).id, uses=count).token
        for number in range(count):
            inputs = torch.randn(60, 4, generator=draw)
            result.append(
                Agent.register(
                    shared_platform.processes.url, token, name=f"{owner[0]}{number}",
                    home=tmp_path_factory.mktemp("home"), model=torch.nn.Linear(4, 3),
                    data=(inputs, inputs[:, :3].argmax(dim=1)), limit=Limit(1e6, 1e-5, allow_raw=True),
                    cache=shared_platform.cache, poll_seconds=1.0,
                )
            )  # fmt: skip
    introduce(*(agent.home for agent in result))
    shared_platform.meet((result[2].home, result[3].home))
    return result


def train(platform: RealPlatform, team: list[Agent], name: str, rounds: int, parameters: dict[str, Any]) -> Plan:
    """Runs a mesh task with these agents to its end; its plan."""
    admin = platform.admin
    task = admin.create_task(
        name=name,
        preset="mesh",
        model_digests=[admin.upload_model(model_bytes(torch.nn.Linear(4, 3)))],
        rounds=rounds,
        min_devices=len(team),
        quorum=1.0,
        auto_start=True,
        round_seconds=120.0,
        parameters=parameters,
    ).id

    def work(agent: Agent) -> None:
        agent.join(task)
        agent.run()

    threads = [threading.Thread(target=work, args=(agent,), daemon=True) for agent in team]
    for thread in threads:
        thread.start()
    ended = admin.wait_for_end(task)
    for thread in threads:
        thread.join(60.0)
    assert ended.state == "finished", f"{ended.reason}\n{platform.logs()}"
    return admin.plan(task)


def links_of(plan: Plan) -> set[frozenset[str]]:
    return {
        frozenset((assignment.device_id, n.device_id)) for assignment in plan.assignments for n in assignment.neighbours
    }


@pytest.mark.parametrize("plan", PLANS)
def test_a_live_mesh_trains_by_each_plan(plan: str, shared_platform: RealPlatform, neighbours: list[Agent]) -> None:
    before = {agent.identity.id: agent.home.ledger().spent() for agent in neighbours}
    parameters = {"topology": {"plan": plan, "times": "declared"}, "privacy": {"epsilon": EPSILON}}
    made = train(shared_platform, neighbours, f"mesh {plan}", ROUNDS, parameters)
    links = links_of(made)
    assert len(links) == PLANS[plan] or plan == "betta"
    ids = [agent.identity.id for agent in neighbours]
    trusted = {frozenset(pair) for own in (ids[:3], ids[3:], ids[2:4]) for pair in combinations(own, 2)}
    strangers = set[str]().union(*(links - trusted))
    noised = {assignment.device_id for assignment in made.assignments if assignment.noised}
    assert noised == strangers == set()
    for agent in neighbours:
        # The first letter holds the common initial model; each later one is a release, with noise or bare.
        was, now = before[agent.identity.id], agent.home.ledger().spent()
        if agent.identity.id in noised:
            assert 0.0 < now.epsilon - was.epsilon <= EPSILON * (ROUNDS - 1)
            assert now.raw_releases == was.raw_releases
        else:
            assert (now.epsilon, now.raw_releases) == (was.epsilon, was.raw_releases + ROUNDS - 1)
    assert {r.metrics["heard"] for r in shared_platform.admin.rounds(made.task_id)} == {1.0}


def gowalla_folder(folder: Path) -> tuple[list[str], str]:
    """Files of three people who know each other in a row; their devices' names, and the relation they have."""
    edges = "".join(f"{a}\t{b}\n" for a, b in ((0, 1), (1, 0), (1, 2), (2, 1)))
    (folder / EDGES).write_text(edges)
    return ["town-0", "town-1", "town-2"], "social"


def santander_folder(folder: Path) -> tuple[list[str], str]:
    """Files of an invented city; the devices of one of its people who has three, and the relation they have."""
    city = build_city(60, seed=5)
    write_city(folder, city.population, city.stays)
    owners, devices = city.population.owners, city.population.devices
    rich = next(owner for owner in np.unique(owners[owners > 0]) if np.count_nonzero(owners == owner) == 3)
    return [f"town-{device}" for device in devices[owners == rich].tolist()], "ownership"


@pytest.mark.parametrize(("form", "made"), [("gowalla", gowalla_folder), ("santander", santander_folder)])
def test_a_task_runs_on_a_network_imported_from_published_files(
    form: str,
    made: Callable[[Path], tuple[list[str], str]],
    shared_platform: RealPlatform,
    tmp_path: Path,
) -> None:
    """Devices register under imported names and mesh along imported ties, of one kind of relation."""
    admin, options = shared_platform.admin, ["--url", shared_platform.processes.url]
    names, relation = made(tmp_path)
    names = [f"{form}-{name}" for name in names]
    options += ["--key", shared_platform.processes.admin_key()]
    sample = ["--users", "3"] if form == "gowalla" else []
    printed = CliRunner().invoke(lab, ["rows", form, str(tmp_path), "--name", f"{form}-town", *sample])
    rows = tmp_path / "rows.ndjson"
    rows.write_bytes(printed.stdout_bytes)
    imported = CliRunner().invoke(app, ["trust", "import", str(rows), "--format", "rows", *options])
    assert imported.exit_code == 0, imported.output
    stored = {device.name: device for device in admin.devices()}
    team = []
    for name in names:
        token = admin.issue_token(stored[name].owner_id, uses=1).token
        inputs = torch.randn(60, 4)
        team.append(
            Agent.register(
                shared_platform.processes.url, token, name=name, home=tmp_path / name, model=torch.nn.Linear(4, 3),
                data=(inputs, inputs[:, :3].argmax(dim=1)), limit=Limit(1e6, 1e-5, allow_raw=True),
                cache=shared_platform.cache, poll_seconds=1.0,
            )
        )  # fmt: skip
    introduce(*(agent.home for agent in team))
    parameters = {"plan": "social", "relations": [relation], "relations_need_trust": False, "same_owner_trusted": False}
    run = train(shared_platform, team, f"mesh of {form}", 2, {"topology": parameters})
    assert [agent.identity.id for agent in team] == [stored[name].id for name in names], "loaded, not registered again"
    ids = [agent.identity.id for agent in team]
    expected = {frozenset(pair) for pair in (combinations(ids, 2) if form == "santander" else pairwise(ids))}
    assert links_of(run) == expected
    assert not any(assignment.noised for assignment in run.assignments)
