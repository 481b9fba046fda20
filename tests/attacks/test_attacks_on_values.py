"""Attacks on values: an update moves the model no further than an honest one may, in any order of arrival."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from coterie.records.enums import ParticipationState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.domain.plausibility import noised_norm
from services.kit.errors import InvalidInput
from services.kit.rpc.enums import word
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, service

__all__ = ["service"]

HONEST = {"dev_a": [1.0, 0.0, 2.0], "dev_b": [0.0, 1.0, 2.0], "dev_c": [1.0, 1.0, 1.0]}
LIAR = "dev_liar"
SQLITE = pytest.mark.parametrize("settings", ["sqlite"], indirect=True)


async def round_of(client: Client, task_id: str, number: int = 1) -> dict[str, pb.Participation]:
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task_id, number=number))
    return {p.device_id: p for p in detail.participations}


async def deliver_all(client: Client, values: dict[str, list[float]], **changes: Any) -> None:
    for device, value in values.items():
        await client.deliver(await client.get_work(device), device, value, **changes)


@SQLITE
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("restarted", [False, True])
async def test_large_negative_mean_unfolds_at_closing_in_any_arrival_order(
    service: ServiceFixture, first: bool, restarted: bool
) -> None:
    """In round one nothing is known of norms before all are there; a restart folds the rest again, to the same bits."""
    client = await service.start()
    task = await client.create([*HONEST, LIAR], rounds=1)
    await client.start_task(task.id)
    lie = {LIAR: [-4000.0] * 3}
    order = lie | HONEST if first else HONEST | lie
    for device, value in itertools.islice(order.items(), 3):
        await client.deliver(await client.get_work(device), device, value)
    if restarted:
        await service.apps[0].stop()
        client = await service.start()
    (last,) = list(order)[3:]
    await client.deliver(await client.get_work(last), last, order[last])
    ended = await client.finished(task.id)
    np.testing.assert_array_equal(
        await client.model(ended.model_digests[0]), np.mean(list(HONEST.values()), axis=0).astype(np.float32)
    )
    parts = await round_of(client, task.id)
    assert word(ParticipationState, parts[LIAR].state) is ParticipationState.REJECTED
    assert "beyond 22.36" in parts[LIAR].note  # ten times the median of √5, √5, √3 and the lie
    assert all(parts[device].state == words.PARTICIPATION_STATE_DELIVERED for device in HONEST)


async def test_two_replicas_leave_out_what_is_too_long_and_agree_to_the_bit(service: ServiceFixture) -> None:
    if "postgresql" not in str(service.settings.database_url):
        pytest.skip("replicas share a round on PostgreSQL alone")
    one, two = await service.start("one"), await service.start("two")
    task = await one.create([*HONEST, LIAR], rounds=1)
    await one.start_task(task.id)
    everything = HONEST | {LIAR: [4000.0] * 3}
    for client, (device, value) in zip(itertools.cycle([one, two]), everything.items(), strict=False):
        await client.deliver(await client.get_work(device), device, value)
    ended = await one.finished(task.id)
    np.testing.assert_array_equal(
        await one.model(ended.model_digests[0]), np.mean(list(HONEST.values()), axis=0).astype(np.float32)
    )


@SQLITE
async def test_update_ten_times_the_usual_length_is_refused_on_arrival(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    task = await client.create([*HONEST, LIAR], rounds=3)
    await client.start_task(task.id)
    await deliver_all(client, HONEST | {LIAR: [1.0, 2.0, 0.0]})
    item = await client.get_work(LIAR)
    assert item.round == 2
    with pytest.raises(InvalidInput, match="10 times what was usual in the last round; lower the learning rate"):
        await client.deliver(item, LIAR, [23.0, 0.0, 0.0])
    await client.deliver(item, LIAR, [22.0, 0.0, 0.0])  # the bound is 10·√5 = 22.36
    await deliver_all(client, HONEST)
    for device, value in HONEST.items():
        await client.deliver(await client.get_work(device), device, value)
    await client.deliver(await client.get_work(LIAR), LIAR, [1.0, 2.0, 0.0])
    ended = await client.finished(task.id)
    assert word(ParticipationState, (await round_of(client, ended.id, 2))[LIAR].state) is ParticipationState.DELIVERED


@SQLITE
@pytest.mark.parametrize(("rule", "more"), [("nnm+mean", {"f": 1}), ("bucketing+mean", {"size": 1}), ("median", {})])
async def test_one_overlong_update_does_not_bend_rules_over_stored_updates(
    service: ServiceFixture, rule: str, more: dict[str, int]
) -> None:
    """A mean of mixtures never sees it; a median judges by itself in round one, and later it is refused."""
    client = await service.start()
    task = await client.create(
        [*HONEST, LIAR], rounds=2, rule=rule, min_devices=3, quorum=0.7, parameters=to_struct({"rule": more})
    )
    await client.start_task(task.id)
    await deliver_all(client, {LIAR: [4000.0] * 3} | HONEST)
    item = await client.get_work(LIAR)
    assert item.round == 2
    assert np.linalg.norm(await client.model(item.model_digests[0])) < 3.0
    with pytest.raises(InvalidInput, match="10 times what was usual"):
        await client.deliver(item, LIAR, [4000.0] * 3)
    await deliver_all(client, HONEST)
    set_principal(Principal("device", LIAR))
    await client.work.DeclineWork(pb.DeclineWorkRequest(task_id=task.id, round=2, device_id=LIAR))
    ended = await client.finished(task.id)
    assert np.linalg.norm(await client.model(ended.model_digests[0])) < 6.0


@SQLITE
async def test_where_the_task_clips_an_update_beyond_clip_and_noise_is_refused(service: ServiceFixture) -> None:
    client = await service.start()
    noise = to_struct({"privacy": {"noise_multiplier": 0.5}})
    task = await client.create(
        [*HONEST, LIAR],
        rounds=1,
        privacy="uniform",
        parameters=noise,
        training_json='{"clip_norm": 2}',
        quorum=0.7,
    )
    await client.start_task(task.id)
    most = noised_norm(2.0, 0.5, 3)
    item = await client.get_work(LIAR)
    with pytest.raises(InvalidInput, match="clipping to 2 and the promised noise allow"):
        await client.deliver(item, LIAR, [most * 1.001, 0.0, 0.0])
    await client.deliver(item, LIAR, [most * 0.999, 0.0, 0.0])
    await deliver_all(client, HONEST)
    assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED


@SQLITE
@pytest.mark.parametrize("copier_first", [True, False])
async def test_nothing_zero_and_copied_updates_are_not_paid_in_a_market(
    service: ServiceFixture, copier_first: bool
) -> None:
    client = await service.start()
    devices = [*HONEST, LIAR, "dev_friend"]
    task = await client.create(devices, rounds=1, preset="market", escrow_microcredits=10, quorum=0.5)
    await client.start_task(task.id)
    item = await client.get_work(LIAR)
    with pytest.raises(InvalidInput, match="form mean"):
        await client.deliver(item, LIAR, [], form=words.FORM_REPORT, digest="", size_bytes=0, budget=0.5)
    with pytest.raises(InvalidInput, match="zero everywhere"):
        await client.deliver(item, LIAR, [0.0] * 3, budget=0.5)
    copies = {LIAR: [0.1, 0.2, 0.3], "dev_friend": [0.1, 0.2, 0.3]}
    small = {device: [0.1 * value for value in values] for device, values in HONEST.items()}
    await deliver_all(client, copies | small if copier_first else small | copies, budget=0.5)
    await client.finished(task.id)
    reported = service.fakes.settled[task.id, 1].work
    paid = {work.device_id for work in reported if work.outcome == words.PARTICIPATION_STATE_DELIVERED}
    assert paid == set(HONEST)
    assert {work.quality for work in reported if work.device_id in paid} == {1.0}  # a pot is shared evenly
    parts = await round_of(client, task.id)
    assert all("to the last byte" in parts[device].note for device in copies)


@SQLITE
@pytest.mark.parametrize("privacy", ["none", "uniform"])
async def test_zero_and_copied_updates_are_recorded_as_bad_where_unpaid(service: ServiceFixture, privacy: str) -> None:
    """An unpaid star takes them, for a device may have nothing to learn; such work adds no trust."""
    client = await service.start()
    devices = [*HONEST, LIAR, "dev_friend", "dev_copy"]
    noise = to_struct({"privacy": {"noise_multiplier": 5.0}} if privacy == "uniform" else {})
    task = await client.create(devices, rounds=1, privacy=privacy, parameters=noise, training_json='{"clip_norm": 3}')
    await client.start_task(task.id)
    same = [0.5, 0.5, 1.0]
    await deliver_all(client, HONEST | {LIAR: [0.0, 0.0, -0.0], "dev_friend": same, "dev_copy": same})
    ended = await client.finished(task.id)
    assert ended.state == words.TASK_STATE_FINISHED
    reported = service.fakes.interactions.values()
    assert {frozenset((i.device_a, i.device_b)) for i in reported} <= {
        frozenset(pair) for pair in itertools.combinations(HONEST, 2)
    }
    # The honest path: those who worked are witnessed together.
    assert reported
    assert all(i.positive for i in reported)


@SQLITE
async def test_impossible_task_costs_honest_devices_no_mutual_trust(
    service: ServiceFixture,
) -> None:
    """Three seconds for a day's work, and a device of the publisher's own that delivers: the others all fail."""
    client = await service.start()
    task = await client.create([*HONEST, LIAR], rounds=1, round_seconds=3.0, quorum=0.25)
    await client.start_task(task.id)
    await client.deliver(await client.get_work(LIAR), LIAR, [1.0, 1.0, 1.0])
    assert (await client.finished(task.id)).state == words.TASK_STATE_FINISHED
    reported = [*service.fakes.interactions.values()]
    assert {frozenset((i.device_a, i.device_b)) for i in reported} == {frozenset((device, LIAR)) for device in HONEST}
    # The honest path: who failed those that did deliver loses with them.
    assert {(i.kind, i.positive) for i in reported} == {("dropped", False)}
