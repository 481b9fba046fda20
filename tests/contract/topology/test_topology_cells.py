"""Cells over real gRPC on both databases: registered, listed, removed, and planned with."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.kit.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.topology.conftest import World


async def plan(world: World, number: int = 1, **topology: Any) -> pb.Plan:
    return await world.topology.MakePlan(
        pb.MakePlanRequest(
            task_id="tsk_1",
            key=f"{number}.1",
            topology="cells",
            privacy="optimised",
            parameters=to_struct({"topology": topology}),
            participants=[pb.Participant(device_id=d, samples=50, model_index=-1) for d in world.registry.devices],
            round=number,
            models=2,
            privacy_unit=words.PRIVACY_UNIT_EXAMPLE,
        ),
        timeout=300.0,  # as the aggregation server allows
    )


async def test_cells_are_kept_changed_and_removed(world: World) -> None:
    await world.put_cell("roof", x_metres=5.0)
    await world.put_cell("hill", models=[1])
    await world.put_cell("roof", x_metres=7.0)
    cells = (await world.topology.ListCells(pb.ListCellsRequest())).cells
    assert [(cell.id, cell.x_metres, list(cell.models)) for cell in cells] == [("hill", 0.0, [1]), ("roof", 7.0, [])]
    await world.topology.RemoveCell(pb.RemoveCellRequest(cell_id="hill"))
    with pytest.raises(NotFound, match="hill"):
        await world.topology.RemoveCell(pb.RemoveCellRequest(cell_id="hill"))
    for changes in ({"blocks": 0}, {"radius_metres": 0.0}, {"power_watts": float("nan")}):
        with pytest.raises(InvalidInput, match=next(iter(changes))):
            await world.put_cell("bad", **changes)
    set_principal(Principal("publisher", "key_1", ""))
    with pytest.raises(PermissionDenied):
        await world.put_cell("mine")


async def test_a_plan_needs_cells_and_is_repeated_by_its_key(world: World) -> None:
    world.registry.place("dev_1", 50.0, 0.0)
    world.registry.place("dev_2", 9000.0, 0.0)
    with pytest.raises(Conflict, match="no cell is registered"):
        await plan(world)
    await world.put_cell()
    first = await plan(world)
    assert [(assignment.device_id, assignment.role, assignment.group) for assignment in first.assignments] == [
        ("dev_1", words.ROLE_SOLO, 0),
        ("dev_2", words.ROLE_IDLE, -1),
    ]
    await world.topology.RemoveCell(pb.RemoveCellRequest(cell_id="roof"))
    assert await plan(world) == first
    with pytest.raises(Conflict, match="no cell is registered"):
        await plan(world, 2)


async def test_trained_policy_answers_in_milliseconds_until_cells_change(world: World) -> None:
    for index in range(6):
        world.registry.place(f"dev_{index}", 40.0 * index, 10.0)
    await world.put_cell()
    begun = await world.topology.TrainPolicy(pb.TrainPolicyRequest(steps=1, users=6, models=2, seed=1))
    await world.until(world.no_training)
    made = await plan(world, policy=begun.id)
    assert sum(assignment.role == words.ROLE_SOLO for assignment in made.assignments) == 4
    took = []
    for number in range(2, 7):
        start = time.perf_counter()
        await plan(world, number, policy=begun.id)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.25  # a few ms of scheduling on an idle machine, with gRPC and two transactions around it
    await world.put_cell(blocks=2)
    with pytest.raises(Conflict, match="trained for layout"):
        await plan(world, 9, policy=begun.id)
    with pytest.raises(NotFound, match="no policy"):
        await plan(world, 10, policy="pol_none")
