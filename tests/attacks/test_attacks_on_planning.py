"""Attacks by long questions: asked and abandoned, asked too often, or left behind by a service that died."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest

from coterie_api.topology.v1 import topology_pb2 as pb
from coterie_api.topology.v1.topology_pb2_grpc import TopologyStub
from services.kit.rpc.channels import open_channel
from services.kit.rpc.grpc_errors import UpstreamAway
from services.kit.rpc.principal import SERVICE, Principal, acting_as, set_principal
from services.kit.rpc.trust_matrix import Matrix
from services.kit.runtime import whatif
from services.kit.runtime.settings import ServiceSettings
from services.kit.runtime.workers import TooManyQuestions, Workers
from services.topology.app import App
from services.topology.planners.clusters import ClusterInputs, ClustersPlanner
from services.topology.whatif import SOLVERS
from tests.attacks.test_attacks_on_the_door import serving
from tests.contract.gateway.conftest import bearer, platform
from tests.contract.gateway.fakes import FakePlatform

__all__ = ["platform"]


def trust_among(devices: int) -> list[list[float]]:
    random = np.random.default_rng(0).random((devices, devices))
    symmetric = np.asarray((random + random.T) / 2)
    np.fill_diagonal(symmetric, 0.0)
    return [[float(value) for value in row] for row in symmetric]


LONG = json.dumps({"direct": trust_among(500)})
"""Minutes of work."""
CELL = pb.Cell(
    id="roof", blocks=4, power_watts=0.01, bandwidth_hertz=150e3, delay_limit_seconds=0.4, radius_metres=400.0
)
SHORT = json.dumps({"direct": [[0.0, 0.9, 0.0], [0.9, 0.0, 0.4], [0.0, 0.4, 0.0]]})


@asynccontextmanager
async def planner(folder: Path, questions_per_caller: int = 8) -> AsyncIterator[tuple[App, str]]:
    """A real planner and its address, with no services behind it."""
    settings = ServiceSettings(data_dir=folder, trust_address="127.0.0.1:9", drain_seconds=0, insecure=True)
    settings = settings.model_copy(update={"questions_per_caller": questions_per_caller})
    app = App(settings, "127.0.0.1:0")
    await app.start()
    try:
        yield app, f"127.0.0.1:{app.server.port}"
    finally:
        await app.stop()


def busy_workers() -> list[psutil.Process]:
    """Descendants of this process that compute."""
    result = []
    for process in psutil.Process().children(recursive=True):
        try:
            before = process.cpu_times().user
            time.sleep(0.05)
            if process.cpu_times().user > before:
                result.append(process)
        except psutil.NoSuchProcess:
            continue
    return result


async def until_idle(seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while await asyncio.to_thread(busy_workers):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.05)


async def test_eight_abandoned_what_ifs_delay_no_other_caller(platform: FakePlatform, tmp_path: Path) -> None:
    """Over REST: disconnecting cancels the work, and the next caller is answered at once."""
    async with (
        planner(tmp_path / "planner") as (_, address),
        serving(platform, tmp_path, topology_address=address, insecure=True) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer("publisher"), timeout=120) as client,
    ):
        expected = await client.post("/v1/what-if/clusters", content=SHORT)  # wakes the workers
        assert expected.status_code == 200

        async def ask_and_hang_up() -> None:
            with pytest.raises(httpx.TimeoutException):
                await client.post("/v1/what-if/clusters", content=LONG, timeout=1.5)

        await asyncio.gather(*(ask_and_hang_up() for _ in range(8)))
        started = time.monotonic()
        answer = await client.post("/v1/what-if/clusters", content=SHORT)
        assert answer.content == expected.content
        assert time.monotonic() - started < 60  # eight of them would have taken minutes
        await until_idle()


async def test_a_question_past_its_deadline_is_killed(tmp_path: Path) -> None:
    set_principal(SERVICE)
    async with planner(tmp_path) as (_, address), open_channel(ServiceSettings(insecure=True), address) as channel:
        stub = TopologyStub(channel)
        await stub.WhatIf(pb.WhatIfRequest(solver="clusters", input_json=SHORT), timeout=60)
        with pytest.raises(UpstreamAway):
            await stub.WhatIf(pb.WhatIfRequest(solver="clusters", input_json=LONG), timeout=1.5)
        await until_idle()
        assert (await stub.WhatIf(pb.WhatIfRequest(solver="clusters", input_json=SHORT), timeout=60)).output_json


async def test_one_publisher_cannot_fill_the_queue_of_questions(tmp_path: Path) -> None:
    async with planner(tmp_path, questions_per_caller=3) as (app, _):
        with acting_as(Principal("publisher", "pub_greedy")):
            held = [asyncio.create_task(app.questions.what_if("clusters", LONG)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyQuestions, match="wait for the answer"):
                await app.questions.what_if("clusters", SHORT)
        for task in held[1:]:
            task.cancel()
        with acting_as(Principal("publisher", "pub_honest")):
            async with asyncio.timeout(60):
                assert json.loads(await app.questions.what_if("clusters", SHORT))["clusters"]
        held[0].cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def test_workers_answer_with_the_same_bytes_as_this_process(tmp_path: Path) -> None:
    set_principal(SERVICE)
    question = json.dumps({"direct": trust_among(12)})
    async with planner(tmp_path) as (app, _):
        assert await app.questions.what_if("clusters", question) == whatif.answer(SOLVERS, "clusters", question)
    rows, columns = np.triu_indices(12, 1)
    direct = np.array(trust_among(12))[rows, columns]
    inputs = ClusterInputs(Matrix(12, rows, columns, direct, direct, 0.8))
    participants = [pb.Participant(device_id=f"d{number:02}") for number in range(12)]
    request = pb.MakePlanRequest(task_id="t", topology="clusters", privacy="trust", participants=participants)
    workers = Workers(1, niceness=0)
    made = await workers.run(ClustersPlanner.plan, request, inputs, None)
    await workers.close()
    own = ClustersPlanner.plan(request, inputs, None)
    assert made.SerializeToString(deterministic=True) == own.SerializeToString(deterministic=True)
    assert made.assignments


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker ends only when its computation lets it")
async def test_no_worker_outlives_a_service_that_is_killed(tmp_path: Path) -> None:
    settings = ServiceSettings(data_dir=tmp_path)
    environment = os.environ | {"COTERIE_DATA_DIR": str(tmp_path)}
    service = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.topology", env=environment)
    set_principal(SERVICE)
    async with open_channel(settings, settings.topology_address) as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
        stub = TopologyStub(channel)
        await stub.PutCell(CELL)
        await stub.TrainPolicy(pb.TrainPolicyRequest(users=30, models=4, steps=100_000))
        question = asyncio.ensure_future(stub.WhatIf(pb.WhatIfRequest(solver="clusters", input_json=LONG), timeout=120))
        started = psutil.Process(service.pid)
        async with asyncio.timeout(90):
            while not (_computing(started, "forkserver") and _computing(started, "train_policy")):
                assert not question.done()
                await asyncio.sleep(0.1)
        family = started.children(recursive=True)
        assert len(family) >= 3
        service.send_signal(signal.SIGKILL)
        await service.wait()
        async with asyncio.timeout(60):  # those who compute at the lowest priority notice late on a busy machine
            while any(_is_there(process) for process in family):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.1)
        with pytest.raises(UpstreamAway):
            await question


def _is_there(process: psutil.Process) -> bool:
    """Whether a process still runs; an ended one that was not waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _computing(service: psutil.Process, command: str) -> bool:
    """Whether a worker started by that command has computed for a while."""
    for process in service.children(recursive=True):
        try:
            if command in " ".join(process.cmdline()) and process.cpu_times().user > 0.5 and process.nice() >= 1:
                return True
        except psutil.NoSuchProcess:
            continue
    return False
