"""Base stations over real gRPC: they decide by their own networks, learn on, and are done without when they die."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from coterie.parameters.topology import RadioParameters
from coterie.records.enums import PolicyLearner, PolicyState
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.errors import InvalidInput
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import SERVICE, Principal, acting_as, set_principal
from services.topology.commands.station import StationApp
from services.topology.commands.train_policy import Job
from services.topology.domain.cell_checkpoints import read_meta
from services.topology.domain.cell_learning import train
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.radio import uplink_rate
from services.topology.domain.records import StoredPolicy
from services.topology.errors import StationLost
from services.topology.planners import cell_stations
from services.topology.planners.cell_network import layout_fingerprint, network, population
from services.topology.planners.cells import MOST_WAITED
from services.topology.store import policies
from services.topology.usecases import stations as desk
from tests.contract.topology.conftest import World

PLACES = {"a": 0.0, "b": 60.0, "c": 230.0, "d": 400.0, "e": 460.0}
SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine turns no living station into a lost one."""
    monkeypatch.setattr(cell_stations, "ANSWER_SECONDS", 30.0)
    monkeypatch.setattr(desk, "LEASE_SECONDS", 120.0)


async def two_cells(world: World) -> list[pb.Cell]:
    for name, x in PLACES.items():
        world.registry.place(name, x, 10.0)
    return [
        await world.put_cell("hill", x_metres=0.0, blocks=2),
        await world.put_cell("town", x_metres=450.0, blocks=2),
    ]


@asynccontextmanager
async def at_work(world: World, *cells: str) -> AsyncIterator[list[StationApp]]:
    """A station in each of these cells."""
    address = {"topology_address": f"127.0.0.1:{world.app.server.port}"}
    apps = [StationApp(world.settings.model_copy(update=address), cell) for cell in cells]
    for app in apps:
        await app.start()

    async def all_there() -> bool:
        listed = (await world.topology.ListCells(pb.ListCellsRequest())).cells
        return {cell.id for cell in listed if cell.station} == set(cells)

    await world.until(all_there)
    try:
        yield apps
    finally:
        for app in apps:
            await app.stop()


async def plan(
    world: World,
    policy: str,
    number: int = 1,
    task: str = "tsk_1",
    *,
    names: Iterable[str] = PLACES,
    model_bytes: int = 0,
    **more: Any,
) -> pb.Plan:
    set_principal(SERVICE)
    request = pb.MakePlanRequest(
        task_id=task,
        key=str(number),
        topology="cells",
        privacy="optimised",
        parameters=to_struct({"topology": {"policy": policy} | more}),
        participants=[pb.Participant(device_id=name, samples=20, model_index=-1) for name in names],
        round=number,
        models=2,
        model_bytes=model_bytes,
    )
    return await world.topology.MakePlan(request, timeout=60.0)


async def trained(world: World, cells: list[pb.Cell], *, penalty: str = "dynamic") -> str:
    """A policy after a few steps, stored as one that is ready."""
    known = network(
        cells,
        population(cells, 6, 2, np.random.default_rng(1)),
        2,
        RadioParameters(),
        fixed_penalty=penalty != "dynamic",
    )
    retained: dict[str, Any] = {}
    config = LearningConfig(named=False, steps=10, epoch=10, batch=8, evaluation_states=4, width=8)
    train(known, config, 1, save=lambda _, tensors: retained.update(tensors))
    digest = await world.app.policies._blobs.put_bytes(save(retained))
    job = Job(pb.TrainPolicyRequest(users=6, models=2), tuple(cells)).to_bytes()
    layout = layout_fingerprint(cells, 2, RadioParameters())
    row = StoredPolicy("pol_1", PolicyLearner.VDN, layout, PolicyState.READY, 1.0, 0.0, time.time(), "", digest, job)
    async with world.app.database.writing() as tx:
        await policies.add(tx, row)
    return "pol_1"


def assignments(plan: pb.Plan) -> list[tuple[Any, ...]]:
    """Assignments, without the aggregator."""
    return [(s.device_id, s.role, s.cell, s.block, s.noise_multiplier, s.upload_seconds) for s in plan.assignments]


async def test_stations_decide_by_their_parts_of_a_policy_as_the_planner_would(world: World) -> None:
    policy = await trained(world, await two_cells(world))
    alone = await plan(world, policy, task="tsk_alone")
    assert not alone.cell_details.q_values
    async with at_work(world, "hill", "town"):
        together = await plan(world, policy, task="tsk_together")
    assert set(together.cell_details.q_values) == {"hill", "town"}
    assert assignments(together) == assignments(alone)


@SQLITE
async def test_station_learns_across_rounds_and_resumes_from_its_checkpoint(world: World) -> None:
    await two_cells(world)
    file = world.settings.data_dir / "stations" / "cell-hill" / "stations.safetensors"
    async with at_work(world, "hill", "town"):
        for number in (1, 2, 3):
            result = await plan(world, "stations", number)
            assert set(result.cell_details.q_values) == {"hill", "town"}
    first = lessons(file)
    assert first >= 1
    async with at_work(world, "hill", "town"):
        for number in (4, 5):
            await plan(world, "stations", number)
    assert lessons(file) > first


@SQLITE
async def test_stations_that_go_on_learning_go_on_serving_their_users(world: World) -> None:
    """Three stations of three blocks, twelve devices: matching serves nine. With the learning rate of a training the
    stations served seven in round 4, clashed over one device in round 5, and served no device from then on."""
    rng = np.random.default_rng([0, 3])
    centres = {"north": (0.0, 250.0), "east": (220.0, -120.0), "west": (-220.0, -120.0)}
    for cell, (x, y) in centres.items():
        await world.put_cell(cell, x_metres=x, y_metres=y, blocks=3, radius_metres=300.0)
    names = [f"dev_{index:02d}" for index in range(12)]
    for name, (x, y) in zip(names, list(centres.values()) * 4, strict=True):
        distance, angle = 250.0 * np.sqrt(rng.random()), 2 * np.pi * rng.random()
        world.registry.place(name, float(x + distance * np.cos(angle)), float(y + distance * np.sin(angle)))
    async with at_work(world, *centres):
        plans = [await plan(world, "stations", number, names=names) for number in range(1, 13)]
    assert [result.cell_details.lost for result in plans] == [{}] * 12
    assert min(sum(load.served for load in result.cell_details.cells) for result in plans) >= 8
    assert not [result.cell_details.instead for result in plans if "it serves" in result.cell_details.instead]


def lessons(file: Path) -> int:
    return int(read_meta(load(file.read_bytes()))["lessons"])


async def die(world: World, station: StationApp, cell: str) -> None:
    """From here on it hears nothing, which is plan out by the next question."""
    assert station._work is not None
    station._work.cancel()
    set_principal(SERVICE)
    with pytest.raises(StationLost, match="did not answer"):
        await world.app.stations.ask(cell, pb.StationQuestion(), 0.2)
    assert not (await world.app.stations.serving())[cell]


@SQLITE
async def test_users_of_station_that_dies_go_to_others_and_come_back_with_it(world: World) -> None:
    """Device c stands between the cells; where no station is left, the planner decides as if there had been none."""
    await two_cells(world)
    async with at_work(world, "hill", "town") as (hill, town):
        before = await plan(world, "stations", task="tsk_before")
        assert {assignment.cell for assignment in before.assignments} >= {"hill", "town"}
        await die(world, hill, "hill")
        after = await plan(world, "stations", task="tsk_after")
        assert "is lost" in after.cell_details.lost["hill"]
        served = {assignment.device_id: assignment.cell for assignment in after.assignments if assignment.cell}
        assert set(served.values()) == {"town"}
        by_hand = await plan(world, "matching", task="tsk_by_hand")
        assert "is lost" in by_hand.cell_details.lost["hill"]
        assert {assignment.cell for assignment in by_hand.assignments if assignment.cell} == {"town"}
        await die(world, town, "town")
        alone = await plan(world, "stations", task="tsk_alone")
        assert {assignment.cell for assignment in alone.assignments if assignment.cell} == {"hill", "town"}
        assert set(alone.cell_details.lost) == {"hill", "town"}
        await hill.start()

        async def back() -> bool:
            return "hill" in (await world.app.stations.serving()) and (await world.app.stations.serving())["hill"]

        await world.until(back)
        again = await plan(world, "stations", task="tsk_again")
        assert set(again.cell_details.q_values) == {"hill"}


@SQLITE
async def test_what_devices_measured_of_their_uploads_counts_where_task_says_so(world: World) -> None:
    await two_cells(world)
    slow = pb.ReportLinksRequest(task_id="tsk_1", links=[pb.Link(device_a="a", device_b="hill", seconds=3.0)])
    await world.topology.ReportLinks(slow)
    declared = {assignment.device_id: assignment for assignment in (await plan(world, "matching")).assignments}
    assert declared["a"].cell == "hill"
    measured = {
        assignment.device_id: assignment
        for assignment in (await plan(world, "matching", 2, times="measured")).assignments
    }
    assert measured["a"].role == words.ROLE_IDLE
    assert "over the delay limit: 3.000 s to hill" in measured["a"].because


async def tell(world: World, device: str, *links: pb.Link) -> None:
    """As a device does."""
    with acting_as(Principal("device", device)):
        await world.topology.ReportLinks(pb.ReportLinksRequest(task_id="tsk_1", links=links))


async def near(world: World, number: int, *, model_bytes: int = 0, times: str = "measured") -> dict[str, pb.Assignment]:
    """Seats of the two devices next to the first cell, by what they measured."""
    more: dict[str, Any] = {"times": times, "fading_decibels": 0.0}  # one block is as good as another
    result = await plan(world, "matching", number, names=("a", "b"), model_bytes=model_bytes, **more)
    return {assignment.device_id: assignment for assignment in result.assignments}


async def test_reported_round_trip_and_throughput_never_beat_the_channel(
    world: World,
) -> None:
    """An upload of 250,000 bits at 312,500 bytes a second after a round trip of 0.1 s takes 0.2 s; one of a model of
    62,500 bytes 0.3 s. Who claims more than its channel carries is given that."""
    world.registry.place("a", 0.0, 10.0)
    world.registry.place("b", 60.0, 10.0)
    name = (await world.put_cell("h" * 64, x_metres=0.0)).id  # as long as a cell's name may be
    way = pb.Link(device_a="a", device_b=name, seconds=9.0, round_trip_seconds=0.1, bytes_per_second=312_500.0)
    false = pb.Link(device_a="b", device_b=name, seconds=1e-9, round_trip_seconds=1e-9, bytes_per_second=1e15)
    await tell(world, "a", way)
    await tell(world, "b", false)
    result = await near(world, 1)
    assert result["a"].upload_seconds == pytest.approx(0.2)
    radio = RadioParameters()
    gain = np.array(np.hypot(60.0, 10.0) ** -2.0)
    watts, hertz = np.array(0.01), np.array(150e3)
    rate = float(uplink_rate(gain, watts, np.array(radio.interference_watts), hertz, radio.noise_density))
    assert result["b"].upload_seconds == pytest.approx(radio.payload_bits / rate)
    assert (await near(world, 2, model_bytes=62_500))["a"].upload_seconds == pytest.approx(0.3)
    assert (await near(world, 3, times="declared"))["a"].upload_seconds < 0.15


@SQLITE
@pytest.mark.parametrize(
    ("teller", "changes", "why"),
    [
        ("a", {"round_trip_seconds": -1.0}, "round trip and a throughput of 0 or more"),
        ("a", {"bytes_per_second": math.nan}, "round trip and a throughput of 0 or more"),
        ("a", {"seconds": math.inf}, "a time above 0"),
        ("a", {"device_b": "x" * 65}, "up to 64 characters"),
        ("b", {}, "its own links only"),
    ],
)
async def test_nonsense_about_a_way_and_ways_of_others_are_refused(
    world: World, teller: str, changes: dict[str, Any], why: str
) -> None:
    link = pb.Link(device_a="a", device_b="hill", seconds=1.0)
    link.MergeFrom(pb.Link(**changes))
    with pytest.raises(InvalidInput, match=why):
        await tell(world, teller, link)


@SQLITE
async def test_device_excluded_by_one_slow_upload_measures_again_after_rounds(world: World) -> None:
    await two_cells(world)
    slow = pb.ReportLinksRequest(task_id="tsk_1", links=[pb.Link(device_a="a", device_b="hill", seconds=3.0)])
    await world.topology.ReportLinks(slow)
    served = []
    for number in range(1, MOST_WAITED + 2):
        result = {
            assignment.device_id: assignment
            for assignment in (await plan(world, "matching", number, times="measured")).assignments
        }
        served.append(result["a"].cell)
    assert served == [""] * MOST_WAITED + ["hill"]


@SQLITE
async def test_unnamed_station_leases_the_first_free_cell_and_releases_it(world: World) -> None:
    await two_cells(world)
    async with at_work(world, "hill"):
        taken = await world.app.stations.take_cell("")
        assert taken.cell_id == "town"
        await world.app.stations.leave(pb.StationKey(cell_id="town", token=taken.token))
    assert await world.app.stations.serving() == {}
