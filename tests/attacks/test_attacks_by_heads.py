"""Attacks by heads: one that claims members it leaves out, or rejects all, gains nothing and no longer leads."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.rounds import settling
from services.kit.errors import Conflict, InvalidInput
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually, service

__all__ = ["service"]

DEVICES = ["dev_a", "dev_b", "dev_c", "dev_d"]
DELIVERED, REJECTED = words.PARTICIPATION_STATE_DELIVERED, words.PARTICIPATION_STATE_REJECTED
SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
Items = dict[str, pb.WorkItem]
Said = dict[str, words.ParticipationState.ValueType]


async def clustered(service: ServiceFixture, rounds: int, owners: list[str] | None = None) -> tuple[Client, pb.Task]:
    """A running task of four devices that all trust each other."""
    client = await service.start()
    service.fakes.trust |= dict.fromkeys(itertools.combinations(DEVICES, 2), 0.9)
    service.fakes.owners |= dict(zip(DEVICES, owners or [f"own_{device}" for device in DEVICES], strict=True))
    task = await client.create(DEVICES, rounds=rounds, preset="clusters", quorum=0.2)
    await client.start_task(task.id)
    return client, task


async def items_of(client: Client, number: int) -> tuple[str, list[str], Items]:
    """The head, its members, and the work of all."""
    items: Items = {}

    async def all_there() -> bool:
        for device in DEVICES:
            set_principal(Principal("device", device))
            result = (await client.work.GetWork(pb.GetWorkRequest(device_id=device, wait_seconds=5.0))).items
            if not result or result[0].round != number:
                return False
            items[device] = result[0]
        return True

    await eventually(all_there)
    heads = [device for device, item in items.items() if item.role == words.ROLE_HEAD]
    return heads[0] if heads else "", [d for d, item in items.items() if item.role == words.ROLE_MEMBER], items


async def report(client: Client, item: pb.WorkItem, member: str, head: str) -> None:
    """What an honest member does: a letter to its head, and its report."""
    set_principal(Principal("device", member))
    data = f"sealed by {member} for round {item.round}".encode()
    letter = pb.Letter(
        task_id=item.task_id,
        round=item.round,
        plan_version=item.plan_version,
        sender=member,
        recipient=head,
        kind=words.LETTER_KIND_UPDATE,
        digest=await client.service.blobs.put_bytes(data),
        size_bytes=len(data),
    )
    await client.work.SendLetter(pb.SendLetterRequest(letter=letter))
    await client.deliver(item, member, [], form=words.FORM_REPORT, digest="", size_bytes=0, weight=item.self_weight)


async def lead(client: Client, item: pb.WorkItem, head: str, verdicts: Said, weight: float | None = None) -> None:
    """A head's sum of those it says delivered, with the weight it claims; by itself, where it claims none, a mean."""
    known = {peer.device_id: peer.weight for peer in item.peers}
    qualities = [item.self_weight, *(known[member] for member, outcome in verdicts.items() if outcome == DELIVERED)]
    total = math.fsum(qualities)
    members = [pb.MemberReport(device_id=member, outcome=outcome, note="bad") for member, outcome in verdicts.items()]
    is_sum = weight is not None or len(qualities) > 1
    data = save({"w": np.array([0.3 * (total if is_sum else 1.0), 0.1, 0.0], np.float32)})
    digest = await client.service.blobs.put_bytes(data)
    await client.deliver(
        item,
        head,
        [],
        form=words.FORM_SUM if is_sum else words.FORM_MEAN,
        digest=digest,
        size_bytes=len(data),
        weight=total if weight is None else weight,
        members=members,
    )


async def parts(client: Client, task_id: str, number: int) -> tuple[pb.Round, dict[str, pb.Participation]]:
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task_id, number=number))
    return detail.round, {p.device_id: p for p in detail.participations}


async def object_to(client: Client, task_id: str, number: int, device: str) -> None:
    set_principal(Principal("device", device))
    request = pb.ObjectToVerdictRequest(task_id=task_id, round=number, device_id=device, why="my letter was there")
    await client.work.ObjectToVerdict(request)


def reports_of(service: ServiceFixture, number: int, *devices: str) -> list[tuple[bool, float]]:
    """(positive, seconds) of what the registry heard about a pair in a round."""
    return [
        (interaction.positive, interaction.duration_seconds)
        for interaction in service.fakes.interactions.values()
        if {interaction.device_a, interaction.device_b} == set(devices)
        and interaction.note.startswith(f"round {number} ")
    ]


@SQLITE
async def test_head_cannot_claim_weight_of_members_it_rejected(service: ServiceFixture) -> None:
    client, task = await clustered(service, rounds=1)
    head, members, items = await items_of(client, 1)
    assert len(members) == 3
    everything = math.fsum([items[head].self_weight, *(peer.weight for peer in items[head].peers)])
    with pytest.raises(InvalidInput, match=r"above the .* that the plan gives to the devices in it"):
        await lead(client, items[head], head, dict.fromkeys(members, REJECTED), weight=everything)
    with pytest.raises(InvalidInput, match="a sum of one device hides nothing"):
        await lead(client, items[head], head, dict.fromkeys(members, REJECTED), weight=items[head].self_weight)
    with pytest.raises(InvalidInput, match=f"no letter of {', '.join(members)} came"):
        await lead(client, items[head], head, dict.fromkeys(members, DELIVERED))
    for member in members:
        await report(client, items[member], member, head)
    await lead(client, items[head], head, dict.fromkeys(members, DELIVERED))
    await client.finished(task.id)
    _, result = await parts(client, task.id, 1)
    assert result[head].weight == everything
    assert all(part.state == DELIVERED and not part.judged_by for part in result.values())


@SQLITE
async def test_a_head_s_sum_is_bounded_by_the_qualities_in_it(service: ServiceFixture) -> None:
    client, _ = await clustered(service, rounds=1)
    head, members, items = await items_of(client, 1)
    for member in members:
        await report(client, items[member], member, head)
    weight = math.fsum([items[head].self_weight, *(peer.weight for peer in items[head].peers)])
    claims = [pb.MemberReport(device_id=member, outcome=DELIVERED) for member in members]
    for share, taken in ((1.01, False), (1.0, True)):  # of the clip norm, which is 1
        data = save({"w": np.array([share * weight, 0.0, 0.0], np.float32)})
        digest = await client.service.blobs.put_bytes(data)
        totals: dict[str, Any] = {
            "form": words.FORM_SUM,
            "weight": weight,
            "members": claims,
            "digest": digest,
            "size_bytes": len(data),
        }
        if taken:
            await client.deliver(items[head], head, [], **totals)
        else:
            with pytest.raises(InvalidInput, match="clipping to 1 and the promised noise allow"):
                await client.deliver(items[head], head, [], **totals)


@SQLITE
async def test_a_head_that_several_dispute_costs_them_little_and_leads_no_more(service: ServiceFixture) -> None:
    client, task = await clustered(service, rounds=3)
    head, members, items = await items_of(client, 1)
    for member in members:
        await report(client, items[member], member, head)
    first, second, silent = members
    await lead(client, items[head], head, dict.fromkeys(members, REJECTED))

    again, others, items = await items_of(client, 2)
    assert again == head  # no member had the time to object before the next round opened
    assert all(items[member].verdict == "by its head: bad" for member in members)
    assert items[head].verdict == ""
    _, result = await parts(client, task.id, 1)
    assert {result[member].judged_by for member in members} == {head}
    assert reports_of(service, 1, first, head) == []  # a head's word alone waits for the other side
    for member in (first, second):
        await object_to(client, task.id, 1, member)
        await object_to(client, task.id, 1, member)
    with pytest.raises(Conflict, match="nothing to dispute"):
        await object_to(client, task.id, 1, head)
    for member in others:
        await report(client, items[member], member, head)
    await lead(client, items[head], head, dict.fromkeys(others, DELIVERED))

    present, _, items = await items_of(client, 3)
    assert items[head].role == words.ROLE_SOLO
    assert present in members  # the others still trust each other
    round_, result = await parts(client, task.id, 1)
    assert round_.disputed == 2
    assert result[first].objection == "my letter was there"
    assert (
        reports_of(service, 1, first, head)
        == reports_of(service, 1, second, head)
        == [(False, settling.DISPUTED_SECONDS)]
    )
    assert reports_of(service, 1, first, second) == []
    assert reports_of(service, 1, silent, head) == [(False, settling.WHOLE_INTERACTION_SECONDS)]
    assert reports_of(service, 2, first, head) == [(True, settling.WHOLE_INTERACTION_SECONDS)]
    with pytest.raises(Conflict, match="final"):
        await object_to(client, task.id, 1, silent)
    kinds = [event.kind for event in await client.events(task.id)]
    assert kinds.count(words.EVENT_KIND_VERDICT_DISPUTED) == 2


@SQLITE
async def test_many_devices_of_one_owner_do_not_unseat_an_honest_head(service: ServiceFixture) -> None:
    client, task = await clustered(service, rounds=3, owners=["own_liar", "own_liar", "own_liar", "own_liar"])
    service.fakes.owners[(await items_of(client, 1))[0]] = "own_honest"
    for number_ in (1, 2):
        head, members, items = await items_of(client, number_)
        for member in members:
            await report(client, items[member], member, head)
        await lead(client, items[head], head, dict.fromkeys(members, REJECTED if number_ == 1 else DELIVERED))
        if number_ == 1:
            await items_of(client, 2)
            for member in members:
                await object_to(client, task.id, 1, member)
    assert (await items_of(client, 3))[0] == head


@SQLITE
async def test_in_the_last_round_members_have_time_to_object(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, task = await clustered(service, rounds=1)
    head, members, items = await items_of(client, 1)
    for member in members:
        await report(client, items[member], member, head)
    await lead(client, items[head], head, dict.fromkeys(members, REJECTED))
    await client.finished(task.id)

    async def released() -> bool:
        return task.id in service.fakes.released

    await eventually(released)  # payment does not wait for objections
    assert reports_of(service, 1, members[0], head) == []
    for member in members:
        await object_to(client, task.id, 1, member)
    monkeypatch.setattr(settling, "OBJECTION_SECONDS", 0.0)
    await service.apps[0].stop()
    await service.start()  # takes the ended task up where it was

    async def settled() -> bool:
        return bool(reports_of(service, 1, members[0], head))

    await eventually(settled)
    assert reports_of(service, 1, members[0], head) == [(False, settling.DISPUTED_SECONDS)]
