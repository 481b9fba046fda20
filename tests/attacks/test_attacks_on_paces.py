"""Attacks on asynchronous rounds: a fast, heavy or late device makes no step alone and earns no more."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.rounds.closing import Closer
from services.kit.errors import CoterieError, Unavailable
from services.kit.rpc.principal import Principal, set_principal
from tests.attacks.test_attacks_on_weights import SQLITE, each_its_owner, enrol, weights
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually, service
from tests.contract.aggregation.test_aggregation_asynchronous import asynchronous, counted, parts, replayed

__all__ = ["service"]

TOLD = {"already_delivered", "round_over", "buffer_opening", "not_in_round"}
"""Reasons that tell a device what to do with its work: it counted before, or is to be sent or asked for again."""
HONEST = [f"dev_{number}" for number in range(6)]
LIARS = [f"dev_liar{number}" for number in range(4)]


async def patiently(client: Client, item: pb.WorkItem, device: str, values: list[float]) -> pb.SubmitUpdateReply:
    """Delivers as a device does: again while the platform says that the next buffer is about to open."""
    while True:
        try:
            return await client.deliver(item, device, values)
        except Unavailable:
            continue


async def delivered(client: Client, task_id: str, number: int) -> set[str]:
    result = await parts(client, task_id, number)
    return {device for device, p in result.items() if p.state == words.PARTICIPATION_STATE_DELIVERED}


@pytest.mark.parametrize("joined", ["before", "while the first round is open"])
async def test_one_owners_fast_devices_make_no_step_alone_and_lose_no_work(
    service: ServiceFixture, joined: str
) -> None:
    """K = 4 and four liars of one owner come first: one counts in each step, the others wait for the next ones."""
    client = await service.start()
    each_its_owner(service, HONEST)
    service.fakes.owners |= dict.fromkeys(LIARS, "own_liar")
    task = await client.create([*HONEST, *LIARS] if joined == "before" else HONEST, rounds=4, **asynchronous(4))
    await client.start_task(task.id)
    await client.get_work(HONEST[0])
    for device in LIARS if joined != "before" else ():
        await enrol(client, task.id, device, 10)
    first = {device: await client.get_work(device) for device in LIARS}
    sent = [asyncio.create_task(patiently(client, item, device, [9.0, 0.0, 0.0])) for device, item in first.items()]
    await eventually(lambda: _has(client, task.id, 1, 1), 60.0)
    for number in range(1, 5):
        await eventually(lambda n=number: _has(client, task.id, n, 1), 60.0)  # type: ignore[misc]
        for device in HONEST[:3]:
            item = await client.get_work(device, 20.0)
            assert item.round == number
            await client.deliver(item, device, [1.0, 0.0, 0.0])
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    answers = await asyncio.gather(*sent)
    assert {answer.outcome for answer in answers} == {words.RECEPTION_ACCEPTED}
    assert sorted(answer.round for answer in answers) == [1, 2, 3, 4]
    for number in range(1, 5):
        assert len(await delivered(client, task.id, number) & set(LIARS)) == 1
    assert counted(service, task.id) == Counter(dict.fromkeys(HONEST[:3], 4) | dict.fromkeys(LIARS, 1))
    assert [r.same for r in await replayed(client, task.id)] == [True] * 4


async def _has(client: Client, task_id: str, number: int, count: int) -> bool:
    set_principal(Principal("publisher", "pub_1"))
    if (await client.get_task(task_id)).round < number:
        return False
    return len(await delivered(client, task_id, number)) >= count


@SQLITE
async def test_an_owner_who_is_left_alone_gets_more_of_a_step_with_each_attempt(service: ServiceFixture) -> None:
    """No other device delivers: the round is retried with two, then three of its devices, and goes on."""
    client = await service.start()
    each_its_owner(service, HONEST)
    service.fakes.owners |= dict.fromkeys(LIARS, "own_fast")
    task = await client.create([*HONEST, *LIARS], rounds=1, round_seconds=2.0, max_attempts=9, **asynchronous(3))
    await client.start_task(task.id)

    async def send(device: str) -> pb.SubmitUpdateReply:
        return await patiently(client, await client.get_work(device), device, [float(device[-1]), 0.0, 0.0])

    answers = await asyncio.wait_for(asyncio.gather(*map(send, LIARS[:3])), 100)
    assert {answer.outcome for answer in answers} == {words.RECEPTION_ACCEPTED}
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert [e.kind for e in await client.events(task.id)].count(words.EVENT_KIND_ROUND_REOPENED) >= 2


async def test_claimed_samples_weigh_no_more_in_a_step_than_in_a_round(service: ServiceFixture) -> None:
    """Among seven enrolled 200 of 800 is a quarter; among the four of a step it is again, so all four count alike."""
    client = await service.start()
    each_its_owner(service, [*HONEST, "dev_liar"])
    task = await client.create([], rounds=1, **asynchronous(4))
    for device in HONEST:
        await enrol(client, task.id, device, 100)
    await enrol(client, task.id, "dev_liar", 10**9)
    await client.start_task(task.id)
    values = {"dev_liar": 5.0} | dict.fromkeys(HONEST[:3], 1.0)
    for device, value in values.items():
        weight = 1e9 if device == "dev_liar" else 100.0
        await client.deliver(await client.get_work(device), device, [value] * 3, weight=weight)
    ended = await client.finished(task.id)
    result = await weights(client, task.id)
    assert {device: result[device] for device in values} == dict.fromkeys(values, 100.0)
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), [2.0] * 3)
    assert [r.same for r in await replayed(client, task.id)] == [True]


@SQLITE
async def test_old_work_passed_off_as_new_gains_the_discount_and_nothing_else(service: ServiceFixture) -> None:
    """The platform cannot see which version an update was made from. Handed in for new work, old work counts as one
    fresh update: its owner's share, one payment for the work it was asked for, and the old work cannot count again."""
    client = await service.start()
    each_its_owner(service, HONEST)
    task = await client.create(HONEST[:3], rounds=2, **asynchronous(2))
    await client.start_task(task.id)
    old = await client.get_work("dev_0")
    for device in ("dev_1", "dev_2"):
        await client.deliver(await client.get_work(device), device, [1.0, 0.0, 0.0])
    new = await client.get_work("dev_0")
    assert (old.round, new.round) == (1, 2)
    assert (await client.deliver(new, "dev_0", [3.0, 0.0, 0.0])).outcome == words.RECEPTION_ACCEPTED
    with pytest.raises(Exception, match="another update of dev_0 is in the buffer of round 2"):
        await client.deliver(old, "dev_0", [3.0, 0.0, 1.0])
    await client.deliver(await client.get_work("dev_1"), "dev_1", [1.0, 0.0, 0.0])
    ended = await client.finished(task.id)
    assert (await client.model(ended.model_digests[0])).tolist() == [3.0, 0.0, 0.0]
    assert counted(service, task.id) == Counter({"dev_0": 1, "dev_1": 2, "dev_2": 1})


def on_postgresql(service: ServiceFixture) -> None:
    if "postgresql" not in str(service.settings.database_url):
        pytest.skip("replicas share a round on PostgreSQL alone")


async def test_two_replicas_fill_the_same_buffers_without_loss_or_repeats(service: ServiceFixture) -> None:
    """Seven devices race against two replicas, K = 3: every accepted update is settled once and replays to the bit."""
    on_postgresql(service)
    clients = [await service.start("one"), await service.start("two")]
    devices = [f"dev_{number}" for number in range(7)]
    task = await clients[0].create(devices, rounds=6, **asynchronous(3))
    await clients[0].start_task(task.id)
    accepted: Counter[str] = Counter()

    async def work(device: str) -> None:
        place, rng = int(device[4:]), np.random.default_rng(int(device[4:]))
        while True:
            client = clients[place % 2]
            set_principal(Principal("device", device))
            asked = pb.GetWorkRequest(device_id=device, wait_seconds=2.0, task_ids=[task.id])
            reply = await client.work.GetWork(asked)
            if reply.ended:
                return
            if reply.items:
                data = rng.normal(size=3).tolist()
                try:
                    answer = await patiently(client, reply.items[0], device, data)
                except CoterieError as error:
                    if error.reason not in TOLD:
                        raise
                else:
                    # Repeated: it counted, but its first answer came too late.
                    accepted[device] += answer.outcome in (words.RECEPTION_ACCEPTED, words.RECEPTION_REPEATED)
            place += 1

    await asyncio.wait_for(asyncio.gather(*map(work, devices)), 120)
    ended = await clients[1].finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert accepted.total() == 18
    assert accepted == counted(service, task.id)
    rounds = await replayed(clients[1], task.id)
    assert [(r.round, r.updates, r.same, r.note) for r in rounds] == [(n, 3, True, "") for n in range(1, 7)]


async def test_a_closing_that_is_tried_again_merges_another_replicas_sum_once(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_postgresql(service)
    one, two = await service.start("one"), await service.start("two")
    task = await one.create(HONEST[:4], rounds=1)
    await one.start_task(task.id)
    store = Closer.store
    failed: list[str] = []

    async def away_once(self: Closer, *arguments: object) -> None:
        if not failed:
            failed.append(self.replica)
            raise Unavailable("the database was away for a moment")
        await store(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Closer, "store", away_once)
    for place, device in enumerate(HONEST[:4]):
        client = two if place % 2 else one
        await client.deliver(await client.get_work(device, 20.0), device, [float(place), 0.0, 4.0])
    ended = await one.finished(task.id)
    assert failed
    assert (await one.model(ended.model_digests[0])).tolist() == [1.5, 0.0, 4.0]
