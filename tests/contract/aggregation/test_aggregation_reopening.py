"""Rounds in clusters that open again while their heads are at work: nothing delivered is lost or counted twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.domain.records import Delivery
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.open_round import OpenRound
from services.kit.errors import Conflict
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import ServiceFixture, eventually

HEAD, MEMBER = "dev_a", "dev_b"
LIGHT = 0.01


async def _work(client: Any, device: str, attempt: int) -> pb.WorkItem:
    items: list[pb.WorkItem] = []

    async def is_there() -> bool:
        set_principal(Principal("device", device))
        reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device))
        items[:] = [item for item in reply.items if item.attempt == attempt]
        return bool(items)

    await eventually(is_there, 320.0)  # the first plan of a busy machine
    return items[0]


async def _pair(service: ServiceFixture) -> tuple[Any, pb.Task, pb.WorkItem]:
    """A head and a member that are both needed, and the head's work."""
    service.fakes.trust = {(HEAD, MEMBER): 0.9}
    client = await service.start()
    task = await client.create([HEAD, MEMBER], rounds=1, preset="clusters")
    await client.start_task(task.id)
    head = await _work(client, HEAD, 1)
    assert head.role == words.ROLE_HEAD
    return client, task, head


async def _decline(client: Any, task: pb.Task) -> None:
    """The member does not know its head: the round is out of reach and opens again."""
    set_principal(Principal("device", MEMBER))
    request = pb.DeclineWorkRequest(task_id=task.id, round=1, device_id=MEMBER, why="a stranger", strangers=[HEAD])
    await client.work.DeclineWork(request)


async def _alone(client: Any, head: pb.WorkItem) -> pb.SubmitUpdateReply:
    reply: pb.SubmitUpdateReply = await client.deliver(head, HEAD, [3.0, 2.0, 1.0], weight=LIGHT * head.self_weight)
    return reply


async def test_what_a_head_delivers_while_the_round_is_replanned_stays(service: ServiceFixture) -> None:
    client, task, head = await _pair(service)
    planning, go_on = asyncio.Event(), asyncio.Event()
    make = client.app.clients.topology.MakePlan

    async def plan_slowly(request: topology.MakePlanRequest, **options: Any) -> topology.Plan:
        planning.set()
        await go_on.wait()
        plan: topology.Plan = await make(request, **options)
        return plan

    client.app.clients.topology.MakePlan = plan_slowly
    await _decline(client, task)
    await asyncio.wait_for(planning.wait(), 60.0)
    assert (await _alone(client, head)).outcome == words.RECEPTION_ACCEPTED
    go_on.set()
    solo = await _work(client, MEMBER, 2)
    assert solo.role == words.ROLE_SOLO
    set_principal(Principal("admin", "adm_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    states = {part.device_id: part.state for part in detail.participations}
    assert states[HEAD] == words.PARTICIPATION_STATE_DELIVERED
    await client.deliver(solo, MEMBER, [1.0, 2.0, 3.0], weight=solo.self_weight)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason


async def test_delivery_in_transit_during_replanning_is_not_the_devices_fault(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, under_way, go_on = Intake._commit, asyncio.Event(), asyncio.Event()

    async def commit_late(self: Intake, batch: list[tuple[OpenRound, Delivery]]) -> Any:
        under_way.set()
        await go_on.wait()
        return await commit(self, batch)

    monkeypatch.setattr(Intake, "_commit", commit_late)
    client, task, head = await _pair(service)
    delivering = asyncio.create_task(_alone(client, head))
    await asyncio.wait_for(under_way.wait(), 60.0)
    await _decline(client, task)
    again = await _work(client, HEAD, 2)
    go_on.set()
    with pytest.raises(Conflict, match="replanned"):
        await delivering
    assert again.role == words.ROLE_SOLO
    assert not [event for event in await client.events(task.id) if event.kind == words.EVENT_KIND_UPDATE_REJECTED]


async def test_sum_of_replanned_members_is_requested_again_without_blame(
    service: ServiceFixture,
) -> None:
    client, task, head = await _pair(service)
    await _decline(client, task)
    await _work(client, HEAD, 2)
    members = [
        pb.MemberReport(device_id=MEMBER, outcome=words.PARTICIPATION_STATE_DELIVERED, weight=head.peers[0].weight)
    ]
    with pytest.raises(Conflict, match="ask for work again"):
        await client.deliver(head, HEAD, [3.0, 2.0, 1.0], weight=head.self_weight, form=words.FORM_SUM, members=members)
    again = await _work(client, HEAD, 2)
    reply = await client.deliver(again, HEAD, [3.0, 2.0, 1.0], weight=again.self_weight)
    assert reply.outcome == words.RECEPTION_ACCEPTED
