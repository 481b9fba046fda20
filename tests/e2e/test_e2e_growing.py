"""Devices whose data grows between rounds, live: in clusters, with several models, and in a mesh."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from coterie.agent.agent import Agent
from coterie.agent.home import introduce
from coterie.agent.results import RoundResult, RunSummary
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import model_bytes, seeded
from coterie.privacy.ledger import Limit
from coterie.strategies.device_state import DeviceState
from tests.e2e.real_platform import RealPlatform
from tests.e2e.test_e2e_multitask import CELL

ROUNDS, AT_FIRST, MORE = 4, 20, 7
Sample = tuple[torch.Tensor, torch.Tensor]


def points(seed: int, count: int) -> list[Sample]:
    """Points of the plane, the right half of which is 1."""
    with seeded(seed):
        drawn = torch.randn(count, 2)
    return [(point, (point[0] > 0).long()) for point in drawn]


def arrivals(seed: int) -> Iterator[list[Sample]]:
    """What an iterator gives: those there are at first, then what has come since."""
    yield points(seed, AT_FIRST)
    for number in range(1, ROUNDS + 1):
        yield points(seed + 100 * number, MORE)


def _appending(held: list[Sample], seed: int) -> Callable[[RoundResult], None]:
    return lambda result: held.extend(points(seed + 100 * result.round, MORE))


def agents(platform: RealPlatform, folder: Path, label: str, count: int, limit: Limit) -> list[Agent]:
    """Of two devices one appends to its list, the other has an iterator."""
    owner = platform.admin.create_owner(f"owner {label}").id
    token = platform.admin.issue_token(owner, uses=count).token
    result: list[Agent] = []
    for index in range(count):
        held = points(index, AT_FIRST)
        result.append(
            Agent.register(
                platform.processes.url, token, name=f"{label}-{index}", home=folder / str(index),
                learner=TorchLearner(torch.nn.Linear(2, 2), held if index % 2 else arrivals(index)),
                on_round=_appending(held, index) if index % 2 else None,
                profile={"location": {"x_metres": 40.0 * index, "y_metres": 10.0}},
                limit=limit, cache=platform.cache, poll_seconds=1.0,
            )
        )  # fmt: skip
    return result


def play(team: list[Agent], task: str) -> list[RunSummary]:
    done: dict[int, RunSummary] = {}

    def run(index: int) -> None:
        team[index].join(task)
        done[index] = team[index].run()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(team))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240.0)
    return [done[index] for index in range(len(team))]


def create(platform: RealPlatform, models: int, **specification: Any) -> str:
    digests = [platform.admin.upload_model(model_bytes(torch.nn.Linear(2, 2))) for _ in range(models)]
    fields: dict[str, Any] = {
        "model_digests": digests, "rounds": ROUNDS, "round_seconds": 120.0, "quorum": 1.0, "auto_start": True,
        "training": {"epochs": 2, "learning_rate": 0.5, "batch_size": 5},
    }  # fmt: skip
    return platform.admin.create_task(**fields | specification).id


def assert_grown(platform: RealPlatform, team: list[Agent], task: str, summaries: list[RunSummary]) -> None:
    ended = platform.admin.wait_for_end(task)
    assert ended.state == "finished", f"{ended.reason}\n{platform.logs()}"
    for summary in summaries:
        assert [(r.round, str(r.outcome)) for r in summary.rounds] == [
            (number, "accepted") for number in range(1, ROUNDS + 1)
        ], summary
    last = AT_FIRST + ROUNDS * MORE
    assert [agent.samples for agent in team] == [last] * len(team)
    reported = {enrolment.device_id: enrolment.samples for enrolment in platform.admin.enrolments(task)}
    # Samples after the last round may have been reported after the end of the task.
    assert all(reported[agent.identity.id] >= last - MORE for agent in team)


def test_clusters_of_devices_whose_data_grows(shared_platform: RealPlatform, tmp_path: Path) -> None:
    team = agents(shared_platform, tmp_path, "growing", 3, Limit(1e6, 1e-5, "device", allow_raw=True))
    introduce(*(agent.home for agent in team))
    shared_platform.meet(*((a.home, b.home) for a in team for b in team if a.identity.id < b.identity.id))
    task = create(shared_platform, 1, name="growing-clusters", preset="clusters", incentive="none", min_devices=3)
    summaries = play(team, task)
    assert_grown(shared_platform, team, task, summaries)
    roles = {part.role for part in shared_platform.admin.round(task, ROUNDS).participations}
    assert {"head", "member"} <= roles


def test_several_models_of_devices_whose_data_grows(shared_platform: RealPlatform, tmp_path: Path) -> None:
    """In the third round at the latest an update speaks for samples that were not there in the first."""
    shared_platform.admin.put_cell("growing", **CELL)
    try:
        team = agents(shared_platform, tmp_path, "celled", 3, Limit(1e3, 1e-5))
        task = create(
            shared_platform, 2, name="growing-models", preset="multitask", privacy_unit="example", min_devices=3,
            parameters={"privacy": {"dimension": 100.0}},
        )  # fmt: skip
        summaries = play(team, task)
    finally:
        shared_platform.admin.remove_cell("growing")
    assert_grown(shared_platform, team, task, summaries)
    weights = [
        sorted(part.weight for part in shared_platform.admin.round(task, number).participations) for number in (1, 3, 4)
    ]
    assert weights[0] == [float(AT_FIRST)] * 3
    assert all(weight >= AT_FIRST + MORE for weight in weights[1])
    assert all(weight >= AT_FIRST + 2 * MORE for weight in weights[2])


def test_mesh_with_growing_data_enlarges_batches_and_reports_regret(
    shared_platform: RealPlatform, tmp_path: Path
) -> None:
    """Basic batches of 100, more than anybody has: a batch is what a device holds as its round is planned."""
    team = agents(shared_platform, tmp_path, "online", 3, Limit(1e6, 1e-5, allow_raw=True))
    introduce(*(agent.home for agent in team))
    task = create(
        shared_platform, 1, name="growing-mesh", preset="mesh", privacy="none", min_devices=3,
        parameters={"topology": {"basic_batch": 100, "replan_gain": 0.0}}, training={"learning_rate": 0.5},
    )  # fmt: skip
    summaries = play(team, task)
    assert_grown(shared_platform, team, task, summaries)
    first, last = (shared_platform.admin.plan(task, version) for version in (1, 0))
    assert [assignment.batch_size for assignment in first.assignments] == [AT_FIRST] * 3
    # Samples after a round may have been reported after the plan of the next.
    assert all(assignment.batch_size >= AT_FIRST + 2 * MORE for assignment in last.assignments)
    batches = {assignment.device_id: assignment.batch_size for assignment in last.assignments}
    for agent in team:
        state = DeviceState.load(agent.home.memory(task))
        assert state is not None
        sizes = [len(batch) for batch in state.seen()]
        assert (sizes[0], sizes[-1]) == (AT_FIRST, batches[agent.identity.id])
        assert sizes == sorted(sizes)
        metrics = next(
            part.metrics
            for part in shared_platform.admin.round(task, ROUNDS).participations
            if part.device_id == agent.identity.id
        )
        assert 0.0 < metrics["regret"] < state.online_loss
