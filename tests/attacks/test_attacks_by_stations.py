"""Attacks by base stations: on the users they serve, on noise, on neighbours and on each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from coterie_cli.certificates import make_certificates
from services.kit.errors import CoterieError, InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import SERVICE, STATION, Principal, set_principal
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings
from services.topology.commands.station import StationApp
from services.topology.domain.station import Experience, Sight, started
from services.topology.planners.cells import MOST_WAITED, assemble
from tests.contract.aggregation.cellular import (
    CELLS,
    begun,
    patient,
    put_cells,
    serving,
    stations,
)
from tests.contract.aggregation.conftest import ServiceFixture, eventually, service
from tests.unit.topology.planners.test_planner_cells import PLANNER, by_id, cell, inputs, request

__all__ = ["patient", "service"]

SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


@SQLITE
async def test_no_station_serves_a_cell_without_its_token(service: ServiceFixture) -> None:
    """Neither another station, nor a device or a publisher; a cell that is served is not taken."""
    await put_cells(service)
    async with stations(service):
        channel = open_channel(service.settings, service.settings.topology_address)
        stub = rpc.StationsStub(channel)
        for role, error in ((STATION, CoterieError), (Principal("device", "dev_a"), PermissionDenied)):
            set_principal(role)
            with pytest.raises(error):
                await stub.TakeCell(topology.TakeCellRequest(cell_id="hill"))
        set_principal(STATION)
        key = topology.StationKey(cell_id="hill", token="f" * 64)
        calls: list[Callable[[], Any]] = [
            lambda: stub.NextQuestion(topology.NextQuestionRequest(key=key)),
            lambda: stub.Decide(topology.StationDecision(key=key, question_id="ask_1")),
            lambda: stub.LeaveCell(key),
        ]
        for call in calls:
            with pytest.raises(PermissionDenied, match="another station serves hill"):
                await call()
        assert await serving(service) == set(CELLS)
        await channel.close()


async def test_station_certificate_opens_only_what_stations_call(tmp_path: Path) -> None:
    folders = make_certificates(
        tmp_path / "certs", {name: ["localhost"] for name in ("topology", "station", "trust")}, 30
    )

    class Quiet(rpc.StationsServicer):
        async def TakeCell(self, request: topology.TakeCellRequest, context: Any) -> topology.TakenCell:
            return topology.TakenCell(cell_id="hill")

    class Planner(rpc.TopologyServicer):
        async def ListCells(self, request: topology.ListCellsRequest, context: Any) -> topology.ListCellsReply:
            return topology.ListCellsReply()

    settings = {name: ServiceSettings(data_dir=tmp_path, tls_dir=folders[name], drain_seconds=0.1) for name in folders}
    server = Server(settings["topology"], "localhost:0")
    server.add(rpc.add_StationsServicer_to_server, Quiet(), "coterie_api.topology.v1.Stations")  # type: ignore[abstract]
    server.add(rpc.add_TopologyServicer_to_server, Planner(), "coterie_api.topology.v1.Topology")  # type: ignore[abstract]
    await server.start()
    for name in ("station", "trust"):
        set_principal(STATION)
        channel = open_channel(settings[name], f"localhost:{server.port}")
        if name == "station":
            assert (await rpc.StationsStub(channel).TakeCell(topology.TakeCellRequest())).cell_id == "hill"
        else:
            with pytest.raises(PermissionDenied, match="certificate of trust"):
                await rpc.StationsStub(channel).TakeCell(topology.TakeCellRequest())
        with pytest.raises(PermissionDenied, match=f"certificate of {name}"):
            await rpc.TopologyStub(channel).ListCells(topology.ListCellsRequest())
        await channel.close()
    await server.stop()


async def plan_of(service: ServiceFixture, task_id: str) -> topology.Plan:
    """A task's first plan, once there is one."""
    set_principal(SERVICE)
    channel = open_channel(service.settings, service.settings.topology_address)
    plans: list[topology.Plan] = []

    async def planned() -> bool:
        try:
            plans.append(await rpc.TopologyStub(channel).GetPlan(topology.GetPlanRequest(task_id=task_id)))
        except NotFound:
            return False
        return True

    await eventually(planned)
    await channel.close()
    return plans[0]


# --- decisions --------------------------------------------------------------------------------------------------------


@SQLITE
async def test_station_choosing_low_noise_or_foreign_users_is_excluded(
    service: ServiceFixture,
) -> None:
    """Its users move to other cells in reach; here there is none, so they wait and learn why."""
    lies = iter(("noise", "users", "value", "block"))

    class Lying(StationApp):
        def decided(self, seen: topology.Observation) -> topology.StationDecision:
            decision = super().decided(seen)
            match next(lies):
                case "noise":
                    decision.multipliers[0] *= 0.5
                case "users":
                    decision.users[-1] = 99
                case "value":
                    decision.q_value = math.inf
                case "block":
                    decision.blocks[0] = decision.blocks[1]
            return decision

    await put_cells(service)
    async with stations(service, Lying, StationApp):
        for why in ("noise problem asks for", "not its users", "beyond any reward", "do not carry"):
            _, task = await begun(service, policy="stations")
            plan = await plan_of(service, task.id)
            assert why in plan.cell_details.lost["hill"]
            assert {assignment.cell for assignment in plan.assignments} == {"town", ""}


def test_station_that_always_drops_a_user_still_serves_it_after_rounds() -> None:
    """Whom a policy leaves out waits; after MOST_WAITED rounds in a row the round goes by matching."""
    serves_b = topology.StationDecision(users=[1], blocks=[0])
    given = dataclasses.replace(inputs([cell()], {"a": 50.0, "b": 60.0}), decisions={0: serves_b})
    devices = {"a": (50, 0), "b": (100, 1)}
    previous, rounds = None, 0
    for rounds in range(1, MOST_WAITED + 2):
        asked = request(devices, {"topology": {"policy": "stations"}}, number=rounds)
        previous = PLANNER.plan(asked, given, previous)
        if by_id(previous)["a"].role == words.ROLE_SOLO:
            break
    assert rounds == MOST_WAITED + 1


def test_stations_without_users_stop_no_task_and_learn_their_own_worth() -> None:
    """One of three devices is less than half of those that blocks would carry; two of them are not."""
    given = inputs([cell()], {"a": 50.0, "b": 60.0, "c": 70.0})
    asked = request({"a": (50, 0), "b": (100, 1), "c": (80, 0)}, {"topology": {"policy": "stations"}})

    def planned(*users: int) -> topology.Plan:
        decision = topology.StationDecision(users=users, blocks=range(len(users)), q_value=-1.0)
        return PLANNER.plan(asked, dataclasses.replace(given, decisions={0: decision}), None)

    none, one, two = planned(), planned(1), planned(0, 1)
    assert (
        [assignment.role for assignment in none.assignments]
        == [assignment.role for assignment in one.assignments]
        == [words.ROLE_SOLO] * 3
    )
    assert none.cell_details.instead == "it serves 0 of 3 devices that blocks would carry"
    assert one.cell_details.instead == "it serves 1 of 3 devices that blocks would carry"
    assert none.cell_details.decided_reward < one.cell_details.decided_reward < none.cell_details.reward
    assert (two.cell_details.instead, two.cell_details.decided_reward) == ("", 0.0)
    assert by_id(two)["c"].role == words.ROLE_IDLE
    lesson = assemble(asked, given).observations(None, none)[0].lesson
    assert lesson.reward == none.cell_details.decided_reward


def test_neighbours_false_values_affect_learning_boundedly() -> None:
    """Values beyond any reward are refused before; within, the neighbour's targets move and its limits do not."""
    rng = np.random.default_rng(5)
    network = started(4, -300.0)
    for lie in (1e6, -1e6, 0.0) * 5:
        sight = Sight(rng.normal(size=(6, 4)).astype(np.float32), np.full(6, 50.0), rng.uniform(0.1, 0.6, (6, 2)), 0.4)
        choice = network.decide(sight)
        assert choice.picks.sum() <= 2
        assert (sight.delay[choice.picks].min(axis=1) <= 0.4).all()
        assert math.isfinite(choice.q_value)
        network.learn(Experience(sight, choice.picks, -200.0, lie))
    with pytest.raises(InvalidInput, match="is not finite"):
        network.learn(Experience(sight, choice.picks, -200.0, math.nan))
