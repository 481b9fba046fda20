"""Attacks by base stations: on sums and weights, on whom they serve, on noise, on neighbours and on each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie_api.topology.v1 import topology_pb2 as topology
from coterie_api.topology.v1 import topology_pb2_grpc as rpc
from coterie_api.words.v1 import words_pb2 as words
from coterie_cli.certificates import make_certificates
from services.aggregation.domain import auditing
from services.aggregation.domain.accumulator import Accumulator
from services.aggregation.rounds import stationing
from services.kit.caller import SERVICE, STATION, Caller, set_caller
from services.kit.channels import open_channel
from services.kit.errors import CoterieError, InvalidInput, NotFound, PermissionDenied
from services.kit.server import Server
from services.kit.settings import ServiceSettings
from services.topology.commands.station import Reader, StationApp, add_up
from services.topology.domain.station import Experience, Sight, started
from services.topology.planners.cells import MOST_WAITED, assemble
from services.topology.usecases import stations as desk
from tests.contract.aggregation.cellular import (
    CELLS,
    UPDATES,
    begun,
    models_of,
    patient,
    play,
    put_cells,
    serving,
    stations,
    told,
)
from tests.contract.aggregation.conftest import ServiceFixture, eventually, service
from tests.unit.topology.planners.test_planner_cells import PLANNER, by_id, cell, inputs, request

__all__ = ["patient", "service"]

SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
ADDED, LEFT_OUT = words.EVENT_KIND_STATION_ADDED, words.EVENT_KIND_STATION_LEFT_OUT


class Inflating(StationApp):
    """Tells ten times its users' sum."""

    def summed(self, order: topology.SumOrder, read: Reader) -> Accumulator:
        for each in order.summands:
            each.weight *= 10.0
        return add_up(order, read)


class Forging(StationApp):
    """Tells another sum of the same length: one number less, another more."""

    def summed(self, order: topology.SumOrder, read: Reader) -> Accumulator:
        total = add_up(order, read)
        (piece,) = total.pieces()
        total.merge(iter([piece[::-1] - piece]), 0)
        return total


class Dropping(StationApp):
    """Leaves its users' updates out of the sum."""

    def summed(self, order: topology.SumOrder, read: Reader) -> Accumulator:
        del order.summands[:]
        return add_up(order, read)


class Repeating(StationApp):
    """Counts its first user's update twice, and says so nowhere."""

    def summed(self, order: topology.SumOrder, read: Reader) -> Accumulator:
        order.summands.append(order.summands[0])
        return add_up(order, read)


class Endless(StationApp):
    """Tells the largest whole numbers there are, whose squares leave what whole numbers can hold."""

    def summed(self, order: topology.SumOrder, read: Reader) -> Accumulator:
        total = add_up(order, read)
        (piece,) = total.pieces()
        total.merge(iter([np.full_like(piece, np.iinfo(np.int64).min) - piece]), 0)
        return total


class Erasing(StationApp):
    """Hands the model's own bytes in as a sum, so that they are thrown away with it."""

    async def _add_up(self, key: topology.StationKey, question: topology.StationQuestion) -> None:
        place = dict[str, Any](key=key, question_id=question.id)

        async def stream() -> Any:
            yield topology.SumBytes(**place)
            for number, order in enumerate(question.sums.orders):
                asked = topology.ReadUpdateRequest(**place, digest=order.model_digest, length=order.model_bytes)
                yield topology.SumBytes(sum=number, data=(await self._stations.ReadUpdate(asked)).data)

        await self._stations.PutSum(stream())


@SQLITE
@pytest.mark.parametrize(
    ("liar", "why"),
    [
        (Inflating, "longer than its users' updates together"),
        (Forging, "not that of its users' updates"),
        (Dropping, "not that of its users' updates"),
        (Repeating, "longer than its users' updates together"),
        (Endless, "longer than its users' updates together"),
        (Erasing, "which is not one of 3 numbers"),
    ],
)
async def test_a_sum_that_is_not_that_of_the_users_is_not_believed_and_the_model_is_as_without_the_station(
    service: ServiceFixture, liar: type[StationApp], why: str
) -> None:
    await put_cells(service)
    client, task = await begun(service)
    await play(client)
    honest = await models_of(client, task)
    async with stations(service, liar, StationApp):
        client, task = await begun(service)
        await play(client)
        models = await models_of(client, task)
        assert [model.tobytes() for model in models] == [model.tobytes() for model in honest]
        left_out = await told(client, task, LEFT_OUT)
        assert len(left_out) == 2
        assert all(message.startswith("hill: ") and why in message for message in left_out)
        assert len(await told(client, task, ADDED)) == 2
        specification = (await client.get_task(task.id)).specification
        for digest in specification.model_digests:  # none was thrown away
            assert len(await client.model(digest)) == 3


@SQLITE
@pytest.mark.parametrize(("seconds", "asked_in"), [(3600.0, [1]), (0.0, [1, 2])])
async def test_a_station_that_told_a_false_sum_is_not_asked_again_for_a_while(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch, seconds: float, asked_in: list[int]
) -> None:
    """Who changes little of a large sum is found out by chance alone: found out once, it gets no further tries."""
    monkeypatch.setattr(stationing, "PUT_ASIDE_SECONDS", seconds)
    await put_cells(service)
    async with stations(service, Forging, StationApp):
        client, task = await begun(service, rounds=2)
        await play(client)
        await play(client)
        await models_of(client, task)
        events = await client.events(task.id)
    left_out = [event for event in events if event.kind == LEFT_OUT]
    assert sorted(event.round for event in left_out) == sorted(asked_in * 2)
    assert {event.cell for event in left_out} == {"hill"}
    assert f"asked for no sum for {seconds / 60:.0f} minutes" in left_out[0].message
    assert sorted(event.round for event in events if event.kind == ADDED) == [1, 1, 2, 2]


@SQLITE
async def test_a_station_reads_no_more_bytes_at_once_than_one_call_may_hold(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by naming a file often, nor by a long piece, nor by one that begins before the file or behind it."""
    refused: list[str] = []
    whole: list[int] = []

    class Greedy(StationApp):
        async def _add_up(self, key: topology.StationKey, question: topology.StationQuestion) -> None:
            place, order = dict[str, Any](key=key, question_id=question.id), question.sums.orders[0]
            files = {each.model_digest: each.model_bytes for each in question.sums.orders}
            files |= {each.digest: each.size_bytes for of in question.sums.orders for each in of.summands}
            digests, most = list(files), sum(files.values())
            piece = dict[str, Any](**place, digest=order.model_digest)
            attempts: list[Callable[[], Any]] = [
                lambda: self._stations.ReadUpdates(topology.ReadUpdatesRequest(**place, digests=digests * 2)),
                lambda: self._stations.ReadUpdate(topology.ReadUpdateRequest(**piece, length=most + 1)),
                lambda: self._stations.ReadUpdate(topology.ReadUpdateRequest(**piece, length=0)),
                lambda: self._stations.ReadUpdate(topology.ReadUpdateRequest(**piece, start=-8, length=8)),
                lambda: self._stations.ReadUpdate(
                    topology.ReadUpdateRequest(**piece, start=order.model_bytes, length=8)
                ),
            ]
            with monkeypatch.context() as limit:
                limit.setattr(desk, "MOST_BYTES", most)
                read = await self._stations.ReadUpdates(topology.ReadUpdatesRequest(**place, digests=digests))
                whole.append(sum(len(data) for data in read.data) - most)
                for attempt in attempts:
                    try:
                        refused.append(f"it was told {await attempt()}")
                    except InvalidInput as error:
                        refused.append(error.message)
            await super()._add_up(key, question)

    await put_cells(service)
    async with stations(service, Greedy, StationApp):
        client, task = await begun(service)
        await play(client)
        await models_of(client, task)
        assert len(await told(client, task, ADDED)) == 4
    assert whole == [0]
    assert len(refused) == 5
    assert [message for message in refused if "bytes are read at a time" not in message] == []


@SQLITE
async def test_a_station_that_tells_fewer_sums_or_more_than_asked_for_is_believed_in_those_that_are_right(
    service: ServiceFixture,
) -> None:
    refused: list[str] = []

    class Miscounting(StationApp):
        async def _add_up(self, key: topology.StationKey, question: topology.StationQuestion) -> None:
            async def a_third() -> Any:
                yield topology.SumBytes(key=key, question_id=question.id)
                for number in range(3):
                    yield topology.SumBytes(sum=number, data=bytes(8))

            with pytest.raises(InvalidInput, match="2 sums are asked for, one after the other, and sum 2 is told"):
                await self._stations.PutSum(a_third())
            refused.append(question.id)
            told_first = topology.StationQuestion(id=question.id)
            told_first.sums.orders.append(question.sums.orders[0])
            await super()._add_up(key, told_first)

    await put_cells(service)
    client, task = await begun(service)
    await play(client)
    honest = await models_of(client, task)
    async with stations(service, Miscounting, StationApp):
        client, task = await begun(service)
        await play(client)
        models = await models_of(client, task)
        (left_out,) = await told(client, task, LEFT_OUT)
        assert len(await told(client, task, ADDED)) == 3
    assert len(refused) == 1
    assert "its sum has 0 bytes, which is not one of 3 numbers" in left_out
    assert [model.tobytes() for model in models] == [model.tobytes() for model in honest]


@SQLITE
async def test_a_station_weighs_nothing_and_reads_the_updates_it_adds_up_and_nothing_else(
    service: ServiceFixture,
) -> None:
    """Weights are the platform's; what no open question names is not told, whatever its digest."""
    seen: list[topology.SumOrder] = []
    refused: list[CoterieError] = []

    class Curious(StationApp):
        async def _add_up(self, key: topology.StationKey, question: topology.StationQuestion) -> None:
            seen.extend(question.sums.orders)
            for digest in (secret, "0" * 64):
                asked = topology.ReadUpdateRequest(key=key, question_id=question.id, digest=digest, length=8)
                whole = topology.ReadUpdatesRequest(key=key, question_id=question.id, digests=[digest])
                whole.digests.append(question.sums.orders[0].model_digest)
                for call in (self._stations.ReadUpdate(asked), self._stations.ReadUpdates(whole)):
                    try:
                        await call
                    except CoterieError as error:
                        refused.append(error)
            await super()._add_up(key, question)

    secret = await service.blobs.put_bytes(save({"w": np.ones(3, np.float32)}) + b"not meant for stations")
    await put_cells(service)
    async with stations(service, Curious, StationApp):
        client, task = await begun(service)
        await play(client)
        await models_of(client, task)
    assert all(isinstance(error, NotFound) for error in refused)
    assert (len(refused), len(seen)) == (4, 2)
    assert not any(device in str(order) for order in seen for device in UPDATES)


@SQLITE
async def test_nobody_speaks_for_a_cell_without_its_token(service: ServiceFixture) -> None:
    """Neither another station, nor a device or a publisher; a cell that is served is not taken."""
    await put_cells(service)
    async with stations(service):
        channel = open_channel(service.settings, service.settings.topology_address)
        stub = rpc.StationsStub(channel)
        for role, error in ((STATION, CoterieError), (Caller("device", "dev_a"), PermissionDenied)):
            set_caller(role)
            with pytest.raises(error):
                await stub.TakeCell(topology.TakeCellRequest(cell_id="hill"))
        set_caller(STATION)
        key = topology.StationKey(cell_id="hill", token="f" * 64)
        calls: list[Callable[[], Any]] = [
            lambda: stub.NextQuestion(topology.NextQuestionRequest(key=key)),
            lambda: stub.Decide(topology.StationDecision(key=key, question_id="ask_1")),
            lambda: stub.ReadUpdate(topology.ReadUpdateRequest(key=key, question_id="ask_1", digest="0", length=1)),
            lambda: stub.ReadUpdates(topology.ReadUpdatesRequest(key=key, question_id="ask_1", digests=["0"])),
            lambda: stub.LeaveCell(key),
        ]
        for call in calls:
            with pytest.raises(PermissionDenied, match="another station serves hill"):
                await call()
        assert await serving(service) == set(CELLS)
        await channel.close()


async def test_with_tls_a_station_s_certificate_opens_what_stations_call_and_no_other_does(tmp_path: Path) -> None:
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
        set_caller(STATION)
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
    set_caller(SERVICE)
    channel = open_channel(service.settings, service.settings.topology_address)
    found: list[topology.Plan] = []

    async def planned() -> bool:
        try:
            found.append(await rpc.TopologyStub(channel).GetPlan(topology.GetPlanRequest(task_id=task_id)))
        except NotFound:
            return False
        return True

    await eventually(planned)
    await channel.close()
    return found[0]


# --- decisions --------------------------------------------------------------------------------------------------------


@SQLITE
async def test_a_station_that_chooses_too_little_noise_others_users_or_values_without_end_is_left_out(
    service: ServiceFixture,
) -> None:
    """Its users go to whoever else reaches them; here nobody does, so they wait and are told why."""
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
            assert {seat.cell for seat in plan.seats} == {"town", ""}


def test_a_station_that_drops_a_user_for_ever_serves_it_after_a_few_rounds_all_the_same() -> None:
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


def test_stations_that_serve_nobody_stop_no_task_and_learn_what_their_own_decision_was_worth() -> None:
    """One of three devices is less than half of those that blocks would carry; two of them are not."""
    given = inputs([cell()], {"a": 50.0, "b": 60.0, "c": 70.0})
    asked = request({"a": (50, 0), "b": (100, 1), "c": (80, 0)}, {"topology": {"policy": "stations"}})

    def planned(*users: int) -> topology.Plan:
        told = topology.StationDecision(users=users, blocks=range(len(users)), q_value=-1.0)
        return PLANNER.plan(asked, dataclasses.replace(given, decisions={0: told}), None)

    nobody, one, two = planned(), planned(1), planned(0, 1)
    assert [seat.role for seat in nobody.seats] == [seat.role for seat in one.seats] == [words.ROLE_SOLO] * 3
    assert nobody.cell_details.instead == "it serves 0 of 3 devices that blocks would carry"
    assert one.cell_details.instead == "it serves 1 of 3 devices that blocks would carry"
    assert nobody.cell_details.decided_reward < one.cell_details.decided_reward < nobody.cell_details.reward
    assert (two.cell_details.instead, two.cell_details.decided_reward) == ("", 0.0)
    assert by_id(two)["c"].role == words.ROLE_IDLE
    lesson = assemble(asked, given).observations(None, nobody)[0].lesson
    assert lesson.reward == nobody.cell_details.decided_reward


def test_false_values_of_a_neighbour_move_what_is_learned_within_bounds_and_never_whom_blocks_can_carry() -> None:
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
    with pytest.raises(InvalidInput, match="teaches nothing"):
        network.learn(Experience(sight, choice.picks, -200.0, math.nan))


# --- what an audit finds ----------------------------------------------------------------------------------------------


def test_spots_are_drawn_after_the_sum_was_told_and_find_a_changed_sixteenth() -> None:
    """A sixteenth of 10⁶ numbers is looked at: of 64 changed runs all are missed with chance (15/16)^64 = 1.6 %."""
    elements = 1_000_000
    looked = auditing.spots(elements, np.random.default_rng(1))
    assert sum(stop - start for start, stop in looked) >= elements / 16
    assert all(0 <= start < stop <= elements for start, stop in looked)
    assert auditing.spots(1000, np.random.default_rng(1))[0][0] == 0
    assert sum(stop - start for start, stop in auditing.spots(1000, np.random.default_rng(1))) == 1000
    assert auditing.spots(elements, np.random.default_rng(2)) != looked


def test_a_sum_s_length_is_bounded_by_weights_and_norms() -> None:
    """Σ wᵢ|uᵢ| = 2·3 + 1·4 = 10, in units of 2⁻³ 80, and half a unit for each of 4 numbers of 2 updates: 2."""
    assert auditing.longest([(2.0, 3.0), (1.0, 4.0)], 3, 4) == pytest.approx(82.0)
    assert auditing.norm_of(iter([np.array([3, 4], np.int64), np.array([12], np.int64)])) == 13.0
