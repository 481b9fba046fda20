"""Asynchronous rounds over the wire: every update counts once, in some buffer, or its device learns why not."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pricing
from services.aggregation.rounds.opening import Opener
from services.kit.errors import Conflict, InvalidInput, PermissionDenied, Unavailable
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture

FOUR = [f"dev_{letter}" for letter in "abcd"]


def asynchronous(buffer: int, **changes: Any) -> dict[str, Any]:
    buffering = {"buffer": buffer} | changes.pop("buffering", {})
    parameters = {"asynchronous": buffering} | changes.pop("parameters", {})
    return {"mode": "asynchronous", "parameters": to_struct(parameters), "min_devices": buffer} | changes


async def parts(client: Client, task_id: str, number: int) -> dict[str, pb.Participation]:
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task_id, number=number))
    return {p.device_id: p for p in detail.participations}


async def replayed(client: Client, task_id: str) -> list[pb.ReplayedRound]:
    set_principal(Principal("publisher", "pub_1"))
    return list((await client.tasks.ReplayTask(pb.ReplayTaskRequest(task_id=task_id))).rounds)


async def test_a_full_buffer_steps_and_slow_work_counts_in_a_later_one(service: ServiceFixture) -> None:
    """K = 2 of three devices. c works from version 0 while a and b make version 1; with a = ½ and τ = 1 it counts
    1/√2, and Σ w stays whole: (30·2^-½·[9,0,0] + 10·[1,0,0]) / 40."""
    client = await service.start()
    task = await client.create(["dev_a", "dev_b", "dev_c"], samples=30, rounds=2, **asynchronous(2))
    await client.start_task(task.id)
    slow = await client.get_work("dev_c")
    first = await client.get_work("dev_a")
    await client.deliver(first, "dev_a", [1.0, 2.0, 3.0], weight=10.0)
    answer = await client.deliver(await client.get_work("dev_b"), "dev_b", [3.0, 2.0, 1.0], weight=10.0)
    assert (answer.outcome, answer.round) == (words.RECEPTION_ACCEPTED, 1)
    newest = await client.get_work("dev_a")
    assert (newest.round, slow.round) == (2, 1)
    assert newest.model_digests[0] != slow.model_digests[0]
    late = await client.deliver(slow, "dev_c", [9.0, 0.0, 0.0], weight=30.0)
    assert (late.outcome, late.round) == (words.RECEPTION_ACCEPTED, 2)
    again = await client.deliver(slow, "dev_c", [9.0, 0.0, 0.0], weight=30.0)
    assert again.outcome == words.RECEPTION_REPEATED
    with pytest.raises(Conflict, match="another update of dev_c counted for its work of round 1"):
        await client.deliver(slow, "dev_c", [8.0, 0.0, 0.0], weight=30.0)
    await client.deliver(newest, "dev_a", [1.0, 0.0, 0.0], weight=10.0)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    result = await client.model(ended.model_digests[0])
    expected = np.array([2.0, 2.0, 2.0]) + np.array([(30 * 2**-0.5 * 9 + 10) / 40, 0, 0])
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    one, two = await parts(client, task.id, 1), await parts(client, task.id, 2)
    assert {d: p.state for d, p in one.items()} == {
        "dev_a": words.PARTICIPATION_STATE_DELIVERED,
        "dev_b": words.PARTICIPATION_STATE_DELIVERED,
        "dev_c": words.PARTICIPATION_STATE_IDLE,
    }
    assert one["dev_c"].note == "counted in round 2"
    assert (two["dev_c"].base, two["dev_a"].base, two["dev_b"].state) == (1, 2, words.PARTICIPATION_STATE_IDLE)
    assert (await client.deliver(slow, "dev_c", [9.0, 0.0, 0.0])).outcome == words.RECEPTION_REPEATED


async def test_too_stale_work_is_logged_once_and_never_counted(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_a", "dev_b"], rounds=4, **asynchronous(1, buffering={"staleness_limit": 1}))
    await client.start_task(task.id)
    slow = await client.get_work("dev_b")
    for _ in range(2):
        await client.deliver(await client.get_work("dev_a"), "dev_a", [1.0, 0.0, 0.0])
    assert (await client.get_work("dev_a")).round == 3
    for _ in range(2):
        with pytest.raises(Conflict, match="2 versions behind the model and at most 1 are taken") as refused:
            await client.deliver(slow, "dev_b", [5.0, 5.0, 5.0])
        assert refused.value.reason == "too_stale"
    (event,) = [e for e in await client.events(task.id) if e.kind == words.EVENT_KIND_UPDATE_STALE]
    assert event.device_id == "dev_b"
    assert "made for round 1" in event.message
    assert (await parts(client, task.id, 1))["dev_b"].state == words.PARTICIPATION_STATE_LATE
    # It may go on from the newest version at once.
    await client.deliver(await client.get_work("dev_b"), "dev_b", [0.0, 1.0, 0.0])
    await client.deliver(await client.get_work("dev_a"), "dev_a", [0.0, 0.0, 1.0])
    ended = await client.finished(task.id)
    assert (await client.model(ended.model_digests[0])).tolist() == [2.0, 1.0, 1.0]
    assert not [i for i in service.fakes.interactions.values() if not i.positive]


def counted(service: ServiceFixture, task_id: str) -> Counter[str]:
    """How often each device was settled for, over all rounds."""
    settled = [request for (task, _), request in service.fakes.settled.items() if task == task_id]
    paid: list[pricing.Work] = [work for request in settled for work in request.work]
    assert all(work.outcome == words.PARTICIPATION_STATE_DELIVERED for work in paid)
    return Counter(work.device_id for work in paid)


async def test_concurrent_devices_fill_every_buffer_exactly_and_settle_once(service: ServiceFixture) -> None:
    """Seven devices race, K = 3: no step has more or fewer, and payments follow the accepted updates one by one."""
    client = await service.start()
    devices = [f"dev_{i}" for i in range(7)]
    task = await client.create(devices, rounds=6, **asynchronous(3))
    await client.start_task(task.id)
    accepted: Counter[str] = Counter()

    async def work(device: str) -> None:
        rng = np.random.default_rng(int(device[4:]))
        while True:
            set_principal(Principal("device", device))
            reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device, wait_seconds=5.0, task_ids=[task.id]))
            if reply.ended:
                return
            if reply.items:
                await asyncio.sleep(0.02 * int(device[4:]))
                answer = await client.deliver(reply.items[0], device, rng.normal(size=3).tolist())
                accepted[device] += answer.outcome == words.RECEPTION_ACCEPTED

    await asyncio.wait_for(asyncio.gather(*map(work, devices)), 60)
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert accepted == counted(service, task.id)
    assert accepted.total() == 18
    replays = await replayed(client, task.id)
    assert [(r.round, r.updates, r.same, r.note) for r in replays] == [(n, 3, True, "") for n in range(1, 7)]
    assert replays[-1].model_digests == ended.model_digests


async def killed(service: ServiceFixture, client: Client) -> Client:
    """A server started in the place of one that stopped dead."""
    client.app.open_rounds.by_task.clear()
    await client.app.conductor.stop()
    return await service.start()


@pytest.mark.parametrize("rule", ["mean", "fedadam", "trimmed-mean"])
async def test_a_server_that_dies_between_arrivals_makes_the_same_models(service: ServiceFixture, rule: str) -> None:
    """The same arrivals twice, once with the server stopped dead after every one of them: the same bytes."""
    client = await service.start()
    digests = []
    parameters = {"rule": {"f": 1}} if rule == "trimmed-mean" else {}
    for name in ("whole", "torn"):
        options = asynchronous(3, rounds=3, name=name, rule=rule, parameters=parameters)
        task = await client.create(FOUR, **options)
        await client.start_task(task.id)
        slow = await client.get_work("dev_d")
        for number in (1, 2, 3):
            for place, device in enumerate(FOUR[: 3 if number < 3 else 2]):
                item = await client.get_work(device)
                assert item.round == number
                await client.deliver(item, device, [float(place), 1.0, float(number)])
                client = await killed(service, client) if name == "torn" else client
        await client.deliver(slow, "dev_d", [10.0, -1.0, 0.5])
        ended = await client.finished(task.id)
        assert ended.state == words.TASK_STATE_FINISHED, ended.reason
        assert {device for device, p in (await parts(client, task.id, 3)).items() if p.base == 1} == {"dev_d"}
        digests.append(ended.model_digests[0])
        assert [r.same for r in await replayed(client, task.id)] == [True] * 3
    assert digests[0] == digests[1]


async def enrol(client: Client, task_id: str, device: str, samples: int = 10) -> None:
    set_principal(Principal("device", device))
    await client.tasks.Enrol(pb.EnrolRequest(task_id=task_id, device_id=device, samples=samples))


@pytest.mark.parametrize("rule", ["mean", "trust+mean", "trimmed-mean"])
async def test_device_joining_an_open_buffer_gets_work_and_counts_in_it(service: ServiceFixture, rule: str) -> None:
    """c is at work for ever, so without the newcomer d round 1 would not end. Twice, once with the server stopped dead
    after every step: the same bytes, d is settled for like the others, and a revoked newcomer gets nothing."""
    client = await service.start()
    service.fakes.revoked = {"dev_x"}
    service.fakes.trust = {(a, b): 0.8 for a in FOUR for b in FOUR if a < b}
    digests = []
    for name in ("whole", "torn"):
        parameters = {"rule": {"f": 1}} if rule == "trimmed-mean" else {}
        options = asynchronous(3, rounds=2, name=name, rule=rule, parameters=parameters)
        task = await client.create(FOUR[:3], **options)
        await client.start_task(task.id)
        assert (await client.get_work("dev_c")).round == 1

        for place, device in enumerate(("dev_a", "dev_b")):
            await client.deliver(await client.get_work(device), device, [float(place), 1.0, 0.0])
        await enrol(client, task.id, "dev_x")
        await enrol(client, task.id, "dev_d", samples=10)
        client = await killed(service, client) if name == "torn" else client
        item = await client.get_work("dev_d")
        assert item.round == 1
        assert item.trust_weight == pytest.approx(0.8 if rule == "trust+mean" else 1.0)
        client = await killed(service, client) if name == "torn" else client
        answer = await client.deliver(item, "dev_d", [5.0, -1.0, 0.5])
        assert (answer.outcome, answer.round) == (words.RECEPTION_ACCEPTED, 1)
        for place, device in enumerate(("dev_d", "dev_a", "dev_b")):
            await client.deliver(await client.get_work(device), device, [0.0, float(place), 2.0])
            client = await killed(service, client) if name == "torn" else client
        ended = await client.finished(task.id)
        assert ended.state == words.TASK_STATE_FINISHED, ended.reason
        first = await parts(client, task.id, 1)
        assert {d for d, p in first.items() if p.state == words.PARTICIPATION_STATE_DELIVERED} == {*FOUR} - {"dev_c"}
        assert counted(service, task.id) == {"dev_a": 2, "dev_b": 2, "dev_d": 2}
        assert [r.same for r in await replayed(client, task.id)] == [True] * 2
        messages = [e.message for e in await client.events(task.id) if e.kind == words.EVENT_KIND_ROUND_REOPENED]
        assert messages == ["round 1 is open for dev_d too, who joined meanwhile"]
        digests.append(ended.model_digests[0])
        set_principal(Principal("device", "dev_x"))
        reply = await client.work.GetWork(pb.GetWorkRequest(device_id="dev_x", task_ids=[task.id]))
        assert not reply.items
    assert digests[0] == digests[1]


async def test_newcomer_without_an_offer_alone_waits_for_the_next_round(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await service.start()
    task = await client.create(FOUR[:2], rounds=2, **asynchronous(2))
    await client.start_task(task.id)
    await client.deliver(await client.get_work("dev_a"), "dev_a", [1.0, 0.0, 0.0])

    asked = asyncio.Event()

    async def away(*_: object) -> None:
        asked.set()
        raise Unavailable("pricing is away")

    monkeypatch.setattr(Opener, "quote", away)
    await enrol(client, task.id, "dev_c")
    await asyncio.wait_for(asked.wait(), 30)
    monkeypatch.undo()
    await client.deliver(await client.get_work("dev_b"), "dev_b", [0.0, 1.0, 0.0])
    assert (await client.get_work("dev_c")).round == 2


async def test_updates_are_kept_as_the_task_says_and_replay_names_missing_ones(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], rounds=4, **asynchronous(1, keep_rounds=2))
    await client.start_task(task.id)
    for number in range(4):
        await client.deliver(await client.get_work("dev_a"), "dev_a", [float(number), 1.0, 0.0])
    await client.finished(task.id)
    result = await replayed(client, task.id)
    assert [r.same for r in result] == [False, False, True, True]
    assert result[0].note == "its updates are no longer stored; the last 2 rounds keep theirs"
    set_principal(Principal("publisher", "pub_2"))
    with pytest.raises(PermissionDenied):
        await client.tasks.ReplayTask(pb.ReplayTaskRequest(task_id=task.id))


async def test_a_replay_finds_a_changed_weight(service: ServiceFixture) -> None:
    """A row that was altered behind the platform's back makes other bits."""
    import sqlalchemy as sa

    from services.aggregation import tables

    client = await service.start()
    task = await client.create(["dev_a", "dev_b"], rounds=1, **asynchronous(2))
    await client.start_task(task.id)
    for place, device in enumerate(("dev_a", "dev_b")):
        await client.deliver(await client.get_work(device), device, [float(place), 0.0, 0.0], weight=5.0)
    await client.finished(task.id)
    async with client.app.database.writing() as tx:
        changed = tables.participations.update().where(tables.participations.c.device_id == "dev_b")
        await tx.execute(changed.values(weight=sa.literal(9.0)))
    (result,) = await replayed(client, task.id)
    assert (result.same, result.note) == (False, "")
    assert result.replayed_digests[0] != result.model_digests[0]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"preset": "mesh"}, "neighbours mix the models of the same round"),
        ({"preset": "clusters"}, "a head combines its members' updates of the same round"),
        ({"preset": "multitask"}, "a schedule says which devices are served"),
        ({"preset": "survey", "rounds": 1}, "a survey asks once"),
        ({"preset": "market"}, "a price holds for one round"),
        ({"parameters": {"sums": {"mode": "secure"}}}, "a secure sum is of the devices of one round"),
        ({"max_devices": 3}, "none is drawn by lot"),
        ({"rule": "krum", "parameters": {"rule": {"f": 1}}}, "raise parameters.asynchronous.buffer or lower f"),
    ],
)
async def test_what_cannot_be_asynchronous_is_refused_with_the_reason(
    service: ServiceFixture, changes: dict[str, Any], why: str
) -> None:
    client = await service.start()
    if changes.get("preset") == "multitask":
        digests = [await client.upload_model(np.full(3, value, np.float32)) for value in (0, 1)]
        changes = {**changes, "model_digests": digests}
    if changes.get("preset") == "survey":
        changes = {**changes, "parameters": {"survey": {"question": "?", "low": 0, "high": 1}}}
    with pytest.raises(InvalidInput) as refused:
        await client.create([], **asynchronous(2, **changes))
    assert why in refused.value.message
