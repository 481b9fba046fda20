"""Two cells, each with its base station, around a real aggregation server, and devices that deliver by hand."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from services.kit.rpc.channels import open_channel
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import SERVICE, Principal, set_principal
from services.topology.commands.station import StationApp
from services.topology.planners import cell_stations
from services.topology.usecases import stations as desk
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually

PLACES = {"dev_a": 0.0, "dev_b": 20.0, "dev_c": 1000.0, "dev_d": 1020.0}
"""Metres east: two devices in each cell."""
UPDATES = {"dev_a": [0.3, -0.1, 0.2], "dev_b": [1e-7, 0.5, 0.25], "dev_c": [-0.4, 0.1, 0.3], "dev_d": [0.2, 0.2, -0.7]}
CELLS = {"hill": 0.0, "town": 1000.0}
CELL: dict[str, Any] = {
    "power_watts": 0.01,
    "bandwidth_hertz": 150e3,
    "delay_limit_seconds": 0.4,
    "radius_metres": 300.0,
}


async def put_cells(service: ServiceFixture) -> None:
    """Registers the two cells."""
    set_principal(Principal("admin", "adm_1"))
    channel = open_channel(service.settings, service.settings.topology_address)
    for name, x in CELLS.items():
        await rpc.TopologyStub(channel).PutCell(topology.Cell(id=name, x_metres=x, blocks=4, **CELL))
    await channel.close()
    service.fakes.places |= PLACES
    service.fakes.owners |= {device: f"own_{device}" for device in PLACES}


async def serving(service: ServiceFixture) -> set[str]:
    """Cells whose station is there."""
    set_principal(SERVICE)
    channel = open_channel(service.settings, service.settings.topology_address)
    reply = await rpc.TopologyStub(channel).ListCells(topology.ListCellsRequest())
    await channel.close()
    return {cell.id for cell in reply.cells if cell.station}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine turns no living station into a lost one."""
    monkeypatch.setattr(cell_stations, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(desk, "LEASE_SECONDS", 120.0)


@asynccontextmanager
async def stations(service: ServiceFixture, *kinds: type[StationApp]) -> AsyncIterator[list[StationApp]]:
    """Stations at work, each in a cell; where none are named, honest ones in both."""
    apps = [kind(service.settings, cell) for kind, cell in zip(kinds or (StationApp, StationApp), CELLS, strict=False)]
    for app in apps:
        await app.start()

    async def all_there() -> bool:
        return len(await serving(service)) == len(apps)

    await eventually(all_there)
    try:
        yield apps
    finally:
        for app in apps:
            await app.stop()


async def begun(service: ServiceFixture, *, rounds: int = 1, **parameters: object) -> tuple[Client, pb.Task]:
    """A running task of two models and four devices, which promise noise they need not add to be taken."""
    client = Client(service, service.apps[0], service.channels[0]) if service.apps else await service.start()
    models = [await client.upload_model(np.full(3, value, np.float32)) for value in (0.0, 1.0)]
    task = await client.create(
        list(PLACES),
        name=f"task {secrets.token_hex(4)}",
        preset="multitask",
        model_digests=models,
        rounds=rounds,
        min_devices=4,
        parameters=to_struct({"topology": parameters}),
    )
    await client.start_task(task.id)
    return client, task


async def play(client: Client, updates: Mapping[str, Sequence[float]] = UPDATES) -> dict[str, pb.WorkItem]:
    """Deliver for all devices and return their work items."""
    items = await works(client)
    await hand_in(client, items, updates)
    return items


async def works(client: Client) -> dict[str, pb.WorkItem]:
    """What devices are to do; the first plan may wait for a worker."""
    items: dict[str, pb.WorkItem] = {}

    async def all_assigned() -> bool:
        for device in UPDATES:
            set_principal(Principal("device", device))
            reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device, wait_seconds=2.0))
            if reply.items:
                items[device] = reply.items[0]
        return len(items) == len(UPDATES)

    await eventually(all_assigned)
    return items


async def hand_in(
    client: Client, items: dict[str, pb.WorkItem], updates: Mapping[str, Sequence[float]] = UPDATES
) -> None:
    """Deliver the update of every device for its own model."""
    for device, values in updates.items():
        line = list(PLACES).index(device) % 2
        await client.deliver(
            items[device],
            device,
            list(values),
            model_index=line,
            budget=2.0 / items[device].noise_multiplier ** 2,
            metrics={},
            public_metrics=False,
        )


async def models_of(client: Client, task: pb.Task) -> list[npt.NDArray[np.float32]]:
    """The newest models of a task that has ended."""
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended
    set_principal(Principal("publisher", "pub_1"))
    result = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    return [await client.model(digest) for digest in result.round.model_digests]


async def messages_of(client: Client, task: pb.Task, kind: words.EventKind.ValueType) -> list[str]:
    """Messages of a task's events of one kind."""
    return sorted(event.message for event in await client.events(task.id) if event.kind == kind)
