"""Aggregation: tasks move through their rounds, and nothing that goes wrong changes a result."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from coterie.records.enums import Reception
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.records import Delivery
from services.aggregation.rounds.intake import Intake
from services.aggregation.rounds.open_round import OpenRound
from services.aggregation.store import rounds
from services.kit.database.engine import DatabaseAway
from services.kit.errors import Conflict, InvalidInput, NotFound, PermissionDenied, TooLarge, Unavailable
from services.kit.rpc.parameters import from_struct, to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import ServiceFixture, eventually

DEVICES = ["dev_a", "dev_b", "dev_c"]


async def play(client: Any, task_id: str, rounds: int, devices: list[str] = DEVICES) -> None:
    """Every device delivers (round number, its index, 1) each round."""
    for _ in range(rounds):
        for index, device in enumerate(devices):
            item = await client.get_work(device)
            await client.deliver(item, device, [float(item.round), float(index), 1.0])


async def test_a_task_runs_to_its_end_and_averages_what_was_delivered(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES)
    assert task.state == words.TASK_STATE_CREATED
    await client.start_task(task.id)
    await play(client, task.id, 2)
    ended = await client.finished(task.id)
    assert (ended.state, ended.round, ended.enrolled) == (words.TASK_STATE_FINISHED, 2, 3)
    # round 1 adds (1, mean(0,1,2), 1), round 2 adds (2, 1, 1)
    assert (await client.model(ended.model_digests[0])).tolist() == [3.0, 2.0, 2.0]
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    assert detail.round.metrics["accuracy"] == 0.5
    assert [p.state for p in detail.participations] == [words.PARTICIPATION_STATE_DELIVERED] * 3
    await eventually(lambda: _holds(task.id in service.fakes.released))
    assert {w.device_id: w.outcome for w in service.fakes.settled[task.id, 2].work} == dict.fromkeys(
        DEVICES, words.PARTICIPATION_STATE_DELIVERED
    )
    assert len(service.fakes.interactions) == 2 * 3
    assert all(interaction.positive for interaction in service.fakes.interactions.values())


async def test_a_devices_rounds_are_listed_in_order_and_page_by_page(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=3)
    await client.start_task(task.id)
    await play(client, task.id, 3)
    await client.finished(task.id)
    ask = pb.ListParticipationsRequest(task_id=task.id, device_id="dev_b", limit=2)
    first = await client.tasks.ListParticipations(ask)
    assert [(p.round, p.device_id, p.state) for p in first.participations] == [
        (1, "dev_b", words.PARTICIPATION_STATE_DELIVERED),
        (2, "dev_b", words.PARTICIPATION_STATE_DELIVERED),
    ]
    ask.cursor = first.next_cursor
    rest = await client.tasks.ListParticipations(ask)
    assert ([p.round for p in rest.participations], rest.next_cursor) == ([3], "")
    ask.device_id = "dev_nobody"
    assert not (await client.tasks.ListParticipations(ask)).participations
    set_principal(Principal("device", "dev_a"))
    with pytest.raises(PermissionDenied, match="may not act for dev_nobody"):
        await client.tasks.ListParticipations(ask)
    with pytest.raises(NotFound):
        await client.tasks.ListParticipations(pb.ListParticipationsRequest(task_id="tsk_none", device_id="dev_a"))


async def _holds(value: bool) -> bool:
    return value


async def test_a_restart_in_the_middle_of_a_round_changes_no_bit(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=1)
    await client.start_task(task.id)
    for index, device in enumerate(DEVICES[:2]):
        item = await client.get_work(device)
        await client.deliver(item, device, [0.1 * (index + 1), 1e-7, 3.0], weight=float(index + 1))
    # As after kill -9: what was in memory is gone, the database and the blobs are there.
    client.app.open_rounds.by_task.clear()
    await client.app.conductor.stop()
    again = await service.start()
    item = await again.get_work("dev_c")
    await again.deliver(item, "dev_c", [0.7, 0.1, 0.2], weight=10.0)
    ended = await again.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED
    direct = (1 * np.float64(np.float32(0.1)) + 2 * np.float64(np.float32(0.2)) + 10 * np.float64(np.float32(0.7))) / 13
    assert (await again.model(ended.model_digests[0]))[0] == np.float32(direct)


async def test_late_duplicate_and_foreign_updates_are_answered_properly(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=2)
    await client.start_task(task.id)
    item = await client.get_work("dev_a")
    assert (await client.deliver(item, "dev_a", [1.0, 1.0, 1.0])).outcome == words.RECEPTION_ACCEPTED
    assert (await client.deliver(item, "dev_a", [1.0, 1.0, 1.0])).outcome == words.RECEPTION_REPEATED
    with pytest.raises(Conflict, match="send one update a round") as other:
        await client.deliver(item, "dev_a", [2.0, 1.0, 1.0])
    assert other.value.reason == "already_delivered"
    with pytest.raises(PermissionDenied):
        set_principal(Principal("device", "dev_b"))
        await client.work.SubmitUpdate(
            pb.SubmitUpdateRequest(task_id=task.id, round=1, device_id="dev_a", form=words.FORM_REPORT)
        )
    with pytest.raises(Conflict, match="no part"):
        await client.deliver(item, "dev_z", [1.0, 1.0, 1.0])
    for device in ("dev_b", "dev_c"):
        await client.deliver(await client.get_work(device), device, [1.0, 1.0, 1.0])
    second = await client.get_work("dev_a")
    assert second.round == 2
    assert (await client.deliver(item, "dev_a", [1.0, 1.0, 1.0])).outcome == words.RECEPTION_REPEATED
    assert (await client.deliver(item, "dev_b", [5.0, 1.0, 1.0])).outcome == words.RECEPTION_LATE
    with pytest.raises(NotFound):
        await client.deliver(pb.WorkItem(task_id="tsk_none", round=1), "dev_a", [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("changes", "values", "kind", "word"),
    [
        ({}, [float("nan"), 0.0, 0.0], InvalidInput, "NaN"),
        ({}, [float("inf"), 0.0, 0.0], InvalidInput, "infinity"),
        ({}, [0.0, 0.0], InvalidInput, "shape"),
        ({"weight": 11.0}, [0.0, 0.0, 0.0], InvalidInput, "samples"),
        ({"weight": 0.0}, [0.0, 0.0, 0.0], InvalidInput, "weight"),
        ({"weight": float("nan")}, [0.0, 0.0, 0.0], InvalidInput, "weight"),
        ({"form": 99}, [0.0, 0.0, 0.0], InvalidInput, "form"),
        ({"form": words.FORM_SUM, "weight": 1e9}, [9.0, 9.0, 9.0], InvalidInput, "form mean"),
        ({"digest": "0" * 64}, [0.0, 0.0, 0.0], NotFound, "upload it first"),
        ({"digest": "xyz"}, [0.0, 0.0, 0.0], InvalidInput, "SHA-256"),
        ({"model_index": 3}, [0.0, 0.0, 0.0], InvalidInput, "model_index"),
        ({"size_bytes": 10_000_000}, [0.0, 0.0, 0.0], TooLarge, "at most"),
        ({"metrics": {"x": float("inf")}}, [0.0, 0.0, 0.0], InvalidInput, "metric"),
        ({"budget": -1.0}, [0.0, 0.0, 0.0], InvalidInput, "budget"),
    ],
)
async def test_a_bad_update_is_refused_with_a_reason_and_changes_nothing(
    service: ServiceFixture, changes: dict[str, Any], values: list[float], kind: type[Exception], word: str
) -> None:
    client = await service.start()
    task = await client.create(["dev_a"], rounds=1)
    await client.start_task(task.id)
    item = await client.get_work("dev_a")
    with pytest.raises(kind, match=word):
        await client.deliver(item, "dev_a", values, **changes)
    if word == "NaN":
        refused = hashlib.sha256(save({"w": np.array(values, np.float32)})).hexdigest()
        with pytest.raises(NotFound):
            await service.blobs.size(refused)
    await client.deliver(await client.get_work("dev_a"), "dev_a", [1.0, 2.0, 3.0])
    ended = await client.finished(task.id)
    assert (await client.model(ended.model_digests[0])).tolist() == [1.0, 2.0, 3.0]


async def test_a_missed_quorum_reopens_the_round_and_then_fails_with_a_reason(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=1, round_seconds=0.4, max_attempts=2)
    await client.start_task(task.id)
    await client.deliver(await client.get_work("dev_a"), "dev_a", [1.0, 1.0, 1.0])
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FAILED
    assert "missed its quorum in 2 attempts: 1 of 3 required updates arrived (2 sent nothing)" in ended.reason
    kinds = [event.kind for event in await client.events(task.id)]
    assert kinds.count(words.EVENT_KIND_ROUND_OPENED) == 1
    assert kinds.count(words.EVENT_KIND_ROUND_REOPENED) == 1
    assert kinds[-1] == words.EVENT_KIND_TASK_FAILED


async def test_a_round_closes_at_its_deadline_once_the_quorum_is_met(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=1, round_seconds=0.8, quorum=0.6)
    await client.start_task(task.id)
    for value, device in enumerate(("dev_a", "dev_b"), start=1):
        await client.deliver(await client.get_work(device), device, [2.0, 2.0, value])
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=1))
    assert {p.device_id: p.state for p in detail.participations}["dev_c"] == words.PARTICIPATION_STATE_DROPPED
    kinds = {i.kind: i.positive for i in service.fakes.interactions.values()}
    assert kinds == {"delivered": True, "dropped": False}


async def test_a_device_that_only_sends_garbage_is_settled_as_rejected(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=1, round_seconds=0.8, quorum=0.6)
    await client.start_task(task.id)
    item = await client.get_work("dev_c")
    with pytest.raises(InvalidInput):
        await client.deliver(item, "dev_c", [float("nan")] * 3)
    for device in ("dev_a", "dev_b"):
        await client.deliver(await client.get_work(device), device, [2.0, 2.0, 2.0])
    await client.finished(task.id)
    outcomes = {w.device_id: w.outcome for w in service.fakes.settled[task.id, 1].work}
    assert outcomes == {
        "dev_a": words.PARTICIPATION_STATE_DELIVERED,
        "dev_b": words.PARTICIPATION_STATE_DELIVERED,
        "dev_c": words.PARTICIPATION_STATE_REJECTED,
    }
    assert any(
        e.kind == words.EVENT_KIND_UPDATE_REJECTED and e.device_id == "dev_c" for e in await client.events(task.id)
    )


async def test_declined_work_is_not_waited_for_and_not_held_against_the_device(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=1, quorum=0.6)
    await client.start_task(task.id)
    set_principal(Principal("device", "dev_c"))
    await client.get_work("dev_c")
    await client.work.DeclineWork(pb.DeclineWorkRequest(task_id=task.id, round=1, device_id="dev_c", why="low battery"))
    for device in ("dev_a", "dev_b"):
        await client.deliver(await client.get_work(device), device, [2.0, 2.0, 2.0])
    ended = await client.finished(task.id)
    assert (ended.state, ended.reason[:3]) == (words.TASK_STATE_FINISHED, "all")
    assert not any("dev_c" in (i.device_a, i.device_b) for i in service.fakes.interactions.values())


async def _seat_of(client: Any, device: str, round: int = 1, attempt: int = 1) -> pb.WorkItem:
    """Work of a device in that attempt of a round."""
    items: list[pb.WorkItem] = []

    async def is_there() -> bool:
        set_principal(Principal("device", device))
        reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device))
        items[:] = [item for item in reply.items if (item.round, item.attempt) == (round, attempt)]
        return bool(items)

    await eventually(is_there)
    return items[0]


async def test_member_that_does_not_know_its_head_is_planned_as_a_stranger(
    service: ServiceFixture,
) -> None:
    service.fakes.trust = {("dev_a", "dev_b"): 0.9}
    client = await service.start()
    task = await client.create(["dev_a", "dev_b"], rounds=2, preset="clusters")
    await client.start_task(task.id)
    member = await _seat_of(client, "dev_b")
    assert (member.role, member.noise_multiplier) == (words.ROLE_MEMBER, 0.0)
    declined = pb.DeclineWorkRequest(
        task_id=task.id, round=1, device_id="dev_b", why="dev_a is not in its circle", strangers=["dev_a", "dev_zz"]
    )
    await client.work.DeclineWork(declined)
    await _seat_of(client, "dev_a", attempt=2)
    waiting = pb.ListLettersRequest(task_id=task.id, round=1, device_id="dev_a", plan_version=member.plan_version)
    with pytest.raises(Conflict, match="is replaced by plan"):
        await client.work.ListLetters(waiting)
    for device in ("dev_a", "dev_b"):  # both are needed, so the round opens again at once
        alone = await _seat_of(client, device, attempt=2)
        assert (alone.role, list(alone.peers)) == (words.ROLE_SOLO, [])
        assert alone.noise_multiplier == pytest.approx(0.6)
        await client.deliver(alone, device, [3.0, 2.0, 1.0] if device == "dev_a" else [1.0, 2.0, 3.0])
    for device in ("dev_a", "dev_b"):
        assert (await _seat_of(client, device, 2)).role == words.ROLE_SOLO


async def test_joining_again_forgets_who_was_a_stranger(service: ServiceFixture) -> None:
    service.fakes.trust = {("dev_a", "dev_b"): 0.9}
    client = await service.start()
    task = await client.create(["dev_a", "dev_b"], rounds=2, quorum=0.5, preset="clusters")
    await client.start_task(task.id)
    await _seat_of(client, "dev_b")
    request = pb.DeclineWorkRequest(task_id=task.id, round=1, device_id="dev_b", strangers=["dev_a"])
    await client.work.DeclineWork(request)
    await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id="dev_b", samples=10))
    await client.deliver(await client.get_work("dev_a"), "dev_a", [1.0, 2.0, 3.0])
    assert (await _seat_of(client, "dev_b", 2)).role == words.ROLE_MEMBER


async def test_cancelling_ends_the_open_round_and_releases_the_escrow(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES)
    await client.start_task(task.id)
    await client.get_work("dev_a")
    set_principal(Principal("publisher", "pub_2"))
    with pytest.raises(PermissionDenied):
        await client.tasks.CancelTask(pb.CancelTaskRequest(task_id=task.id))
    set_principal(Principal("publisher", "pub_1"))
    cancelled = await client.tasks.CancelTask(pb.CancelTaskRequest(task_id=task.id, why="enough"))
    assert (cancelled.state, cancelled.reason) == (words.TASK_STATE_CANCELLED, "enough")
    await eventually(lambda: _holds(task.id in service.fakes.released))
    set_principal(Principal("device", "dev_b"))
    reply = await client.work.GetWork(pb.GetWorkRequest(device_id="dev_b", wait_seconds=0.1, task_ids=[task.id]))
    assert (list(reply.items), dict(reply.ended)) == ([], {task.id: words.TASK_STATE_CANCELLED})


async def test_a_spent_escrow_ends_the_task_gracefully(service: ServiceFixture) -> None:
    service.fakes.exhausted_at = 1
    client = await service.start()
    task = await client.create(["dev_a"], rounds=5)
    await client.start_task(task.id)
    await client.deliver(await client.get_work("dev_a"), "dev_a", [1.0, 1.0, 1.0])
    ended = await client.finished(task.id)
    assert (ended.state, ended.round) == (words.TASK_STATE_FINISHED, 1)
    assert "escrow" in ended.reason


async def test_a_revoked_device_is_left_out_of_the_next_round(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, rounds=2)
    await client.start_task(task.id)
    await client.get_work("dev_c")
    service.fakes.revoked.add("dev_c")
    await play(client, task.id, 1)
    await play(client, task.id, 1, ["dev_a", "dev_b"])
    ended = await client.finished(task.id)
    assert (ended.state, ended.reason[:3]) == (words.TASK_STATE_FINISHED, "all")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"rounds": 0}, "rounds"),
        ({"preset": "nonsense"}, "preset"),
        ({"preset": "", "topology": "mesh", "privacy": "trust"}, "trust needs"),
        ({"quorum": 1.5}, "quorum"),
        ({"model_digests": ["0" * 64]}, "upload it first"),
        ({"model_digests": []}, "exactly one"),
        ({"training_json": "[]"}, "training must be a JSON object"),
        ({"parameters": to_struct({"offer": {"expected": 1}})}, "parameters.offer"),
        ({"name": ""}, "name"),
        ({"round_seconds": -1.0}, "round_seconds"),
        ({"privacy": "uniform"}, "one of noise_multiplier, epsilon .* and target_epsilon"),
    ],
)
async def test_a_senseless_task_is_refused_with_the_reason(
    service: ServiceFixture, changes: dict[str, Any], word: str
) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match=word):
        await client.create([], **changes)


async def test_creating_is_repeatable_but_a_name_names_one_task(service: ServiceFixture) -> None:
    client = await service.start()
    first = await client.create([])
    assert (await client.create([])).id == first.id
    with pytest.raises(Exception, match="another name"):
        await client.create([], rounds=7)


async def test_a_task_is_stored_with_the_defaults_of_topology_and_of_pricing(service: ServiceFixture) -> None:
    client = await service.start()
    given = to_struct({"privacy": {"noise_max": 0.5}, "pricing": {"credits_per_point": 2.0}})
    made = [await client.create([], preset="clusters", parameters=given) for _ in range(2)]
    assert made[0].id == made[1].id
    stored = from_struct(made[0].specification.parameters)
    assert stored["pricing"] == {"round_microcredits": 0, "credits_per_point": 2.0}
    assert (stored["privacy"]["noise_max"], stored["privacy"]["trust_threshold"]) == (0.5, 0.7)


async def test_two_replicas_share_a_round_and_agree_to_the_bit(service: ServiceFixture) -> None:
    if service.settings.database_url == "":
        return  # one SQLite file belongs to one process
    one = await service.start("one")
    two = await service.start("two")
    task = await one.create(DEVICES, rounds=3)
    await one.start_task(task.id)
    for number in range(1, 4):
        for index, device in enumerate(DEVICES):
            client = two if index % 2 else one
            await eventually(lambda c=client, d=device, n=number: _has_round(c, d, n))  # type: ignore[misc]
            item = await client.get_work(device)
            await client.deliver(item, device, [0.1 * (index + 1), 1.0, float(number)])
    ended = await two.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED
    expected = np.float32(0.0)
    for _ in range(3):
        mean = sum(10 * np.float64(np.float32(0.1 * (i + 1))) for i in range(3)) / 30
        expected = np.float32(np.float64(expected) + mean)
    assert (await one.model(ended.model_digests[0]))[0] == pytest.approx(expected, rel=1e-6)
    assert service.fakes.settled.keys() == {(task.id, n) for n in (1, 2, 3)}


async def _has_round(client: Any, device: str, number: int) -> bool:
    set_principal(Principal("device", device))
    reply = await client.work.GetWork(pb.GetWorkRequest(device_id=device, wait_seconds=0.2))
    return any(item.round == number for item in reply.items)


async def test_two_hundred_devices_that_deliver_at_once_are_all_counted(service: ServiceFixture) -> None:
    client = await service.start()
    devices = [f"dev_{i:03}" for i in range(200)]
    task = await client.create(devices, rounds=1)
    await client.start_task(task.id)
    item = await client.get_work(devices[0])

    async def one(index: int) -> words.Reception.ValueType:
        return (await client.deliver(item, devices[index], [float(index), 0.0, 1.0])).outcome

    outcomes = await asyncio.gather(*(one(i) for i in range(200)))
    assert set(outcomes) == {words.RECEPTION_ACCEPTED}
    ended = await client.finished(task.id)
    assert (await client.model(ended.model_digests[0])).tolist() == [99.5, 0.0, 1.0]


async def test_an_update_whose_first_answer_was_lost_still_counts(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit succeeds, the answer does not arrive: the repeat finds it stored and the round closes."""
    commit, losses = Intake._commit, [DatabaseAway("the connection was lost")]

    async def lose_first_result(self: Intake, batch: list[tuple[OpenRound, Delivery]]) -> list[Reception | Exception]:
        results = await commit(self, batch)
        if losses:
            raise losses.pop()
        return results

    monkeypatch.setattr(Intake, "_commit", lose_first_result)
    client = await service.start()
    task = await client.create(["dev_a"], rounds=1)
    await client.start_task(task.id)
    item = await client.get_work("dev_a")
    with pytest.raises(Unavailable):
        await client.deliver(item, "dev_a", [1.0, 2.0, 3.0])
    assert (await client.deliver(item, "dev_a", [1.0, 2.0, 3.0])).outcome == words.RECEPTION_REPEATED
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED
    assert (await client.model(ended.model_digests[0])).tolist() == [1.0, 2.0, 3.0]


async def test_devices_that_enrol_at_once_start_the_task_between_them(service: ServiceFixture) -> None:
    """The last device to come counts all: on PostgreSQL too, where neither sees what the other has not committed."""
    client = await service.start()
    task = await client.create([], name="together", min_devices=8, auto_start=True)

    async def enrol(device: str) -> None:
        set_principal(Principal("device", device))
        await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id=device, samples=1))

    await asyncio.gather(*(enrol(f"dev_{i}") for i in range(8)))
    assert (await client.get_task(task.id)).state == words.TASK_STATE_RUNNING


async def test_cancelled_task_deletes_updates_and_finished_rounds_instructions(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    task = await client.create(["dev_a", "dev_b"], rounds=4)
    await client.start_task(task.id)
    for number in (1, 2, 3):
        for device in ("dev_a", "dev_b") if number < 3 else ("dev_a",):
            item = await client.get_work(device, wait=30.0)
            assert item.round == number
            await client.deliver(item, device, [float(number), 0.0, 0.0 if device == "dev_a" else 1.0])
    set_principal(Principal("publisher", "pub_1"))
    await client.tasks.CancelTask(pb.CancelTaskRequest(task_id=task.id))

    async def stored() -> set[str]:
        return {blob.name async for page in service.blobs.every() for blob in page}

    async def is_clear() -> bool:
        return len(await stored()) == 3  # the first model, and one of each round that was done

    await eventually(is_clear)
    async with client.app.database.reading() as tx:
        participations = {number: await rounds.list_participations(tx, task.id, number) for number in (1, 2, 3)}
    assert {number: {bool(p.work) for p in of_round} for number, of_round in participations.items()} == {
        1: {False},
        2: {True},
        3: {True},
    }
