"""Load generator, fleet and sources of `--source` against a stand-in platform."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.agent.fleet import Fleet
from coterie.errors import Unauthenticated
from coterie.learning.numpy_learner import NumpyLearner
from coterie.learning.training import model_bytes
from coterie.protocol.transport import Backoff
from coterie.samples import BadSource, digits, digits_model, dirichlet_shares
from coterie_cli.load_generator import LoadGenerator, LoadSummary, RandomWorker, Worker
from coterie_cli.sources import Source, digits_learners, digits_source, learners_of, load_source
from tests.e2e.stand_in import StandIn, problem

MODEL = save({"weight": np.zeros((3, 2), np.float32), "bias": np.zeros(3, np.float32)})


async def generate_load(stand_in: StandIn, devices: int, worker: Worker) -> LoadSummary:
    generator = LoadGenerator(stand_in.url, backoff=Backoff(first_seconds=0.01, most_seconds=0.05))
    async with generator.open(devices):
        simulated = await generator.register("ct_t.s", [f"simulated-{index + 1}" for index in range(devices)])
        await generator.enrol("tsk_1", simulated)
        return await generator.run("tsk_1", simulated, worker)


def test_each_device_delivers_each_round_with_two_requests() -> None:
    with StandIn(MODEL, rounds=3, devices=20) as server:
        summary = asyncio.run(generate_load(server, 20, RandomWorker()))
    assert summary.state == "finished"
    assert summary.outcomes == {"accepted": 60}
    # 20 registrations, 20 enrolments, 3 models, and per device 3 updates and 4 polls
    assert summary.requests == 20 + 20 + 3 + 20 * 3 + 20 * 4
    assert len({server.registered[key] for key in server.registered}) == 20


def test_random_updates_depend_on_seed_and_device() -> None:
    bodies = []
    for seed in (1, 1, 2):
        with StandIn(MODEL, rounds=1, devices=2) as server:
            asyncio.run(generate_load(server, 2, RandomWorker(seed)))
            # which id a name got depends on who registered first
            bodies.append(sorted(body for sent in server.updates.values() for body in sent))
    assert bodies[0] == bodies[1] != bodies[2]
    assert bodies[0][0] != bodies[0][1]


def test_busy_platform_is_retried() -> None:
    with StandIn(MODEL, rounds=1, devices=3) as server:
        server.faults["GET /v1/work"] = [problem(503, "unavailable") for _ in range(4)]
        server.faults["POST /v1/devices"] = [problem(503, "unavailable")]
        assert asyncio.run(generate_load(server, 3, RandomWorker())).outcomes == {"accepted": 3}


def test_permanent_refusal_ends_the_run() -> None:
    with StandIn(MODEL, rounds=1, devices=1) as server:
        server.faults["PUT /v1/tasks/{task}/enrolments/{device}"] = [problem(401, "invalid_api_key")]
        with pytest.raises(Unauthenticated):
            asyncio.run(generate_load(server, 1, RandomWorker()))


def test_fleet_that_trains_reduces_the_loss(tmp_path: Path) -> None:
    with StandIn(model_bytes(digits_model()), rounds=3, devices=4, training={"epochs": 2}) as server:
        learners = digits_learners(4)
        fleet = Fleet.register(server.url, "ct_t.s", learners, folder=tmp_path, poll_seconds=1.0)
        fleet.join("tiny")
        summary = fleet.run()
        losses = [server.reports[number, "dev_1"]["metrics"]["loss"] for number in (1, 2, 3)]
    assert (summary.state, summary.outcomes) == ("finished", {"accepted": 12})
    assert losses[0] > losses[1] > losses[2]
    assert sum(learner.samples for learner in learners) == 1797 - 359
    assert sorted(server.enrolled.values()) == sorted(learner.samples for learner in learners)


def test_own_learner_loads_from_file_or_module_and_mistakes_are_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "def make(number, devices):\n"
        "    return torch.nn.Linear(1, 2), (torch.zeros(number + 1, 1), torch.zeros(number + 1).long())\n"
        "def wrong(number, devices):\n"
        "    return 7\n"
    )
    assert [learner.samples for learner in learners_of(f"{file}:make", 3)] == [1, 2, 3]
    alone = load_source("tests.unit.coterie.learning.seam_without_torch:line")
    assert isinstance(alone, NumpyLearner)
    assert alone.samples == 30
    with pytest.raises(BadSource, match="must return a learner"):
        learners_of(f"{file}:wrong", 1)
    with pytest.raises(BadSource, match="has no function other"):
        learners_of(f"{file}:other", 1)
    with pytest.raises(BadSource, match="cannot be imported"):
        learners_of("no_such_package.at_all:make", 1)
    with pytest.raises(BadSource, match="with a file that exists"):
        learners_of("nothing.py:make", 1)


def test_error_in_the_users_function_names_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_mine.py").write_text("START = 3\n")
    (tmp_path / "failing.py").write_text(
        "from beside_mine import START\n"
        "def make(number, devices):\n"
        "    raise RuntimeError(f'no part {number + START}')\n"
    )
    (tmp_path / "broken.py").write_text("import torch\n1 / 0\n")
    with pytest.raises(BadSource, match=r"failing\.py:make failed in .*failing\.py, line 3: RuntimeError: no part 3"):
        learners_of(f"{tmp_path / 'failing.py'}:make", 2)
    with pytest.raises(BadSource, match=r"broken\.py, line 2: ZeroDivisionError: division by zero"):
        load_source(f"{tmp_path / 'broken.py'}:make")


def test_module_in_the_current_folder_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "module_of_mine.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(1, 2), (torch.zeros(4, 1), torch.zeros(4).long())\n"
    )
    assert isinstance(load_source("module_of_mine:make"), Source)


def test_shares_cover_every_sample_once_and_small_concentration_is_uneven() -> None:
    labels = np.repeat(np.arange(10), 50)
    even = dirichlet_shares(labels, 5, 1000.0, np.random.default_rng(1))
    uneven = dirichlet_shares(labels, 5, 0.3, np.random.default_rng(1))
    for shares in (even, uneven):
        assert sorted(np.concatenate(shares).tolist()) == list(range(500))
        assert min(map(len, shares)) >= 10
    spread = [np.std([np.bincount(labels[share], minlength=10) for share in shares]) for shares in (even, uneven)]
    assert spread[1] > 5 * spread[0]


def test_every_device_gets_digits_and_too_many_parts_are_refused() -> None:
    assert min(len(shard[0]) for shard in digits(1000).shards) >= 1
    with pytest.raises(ValueError, match="cannot be dealt"):
        digits(1439)
    with pytest.raises(BadSource, match="parts count from 1"):
        digits_source(4, 3)


def test_the_held_out_digits_are_in_no_shard() -> None:
    split = digits(3, seed=4)
    rows = {tuple(row.tolist()) for shard, _ in split.shards for row in shard}
    held = {tuple(row.tolist()) for row in split.test[0]}
    assert not rows & held
