"""Clip norms that follow the updates: each round sends its devices the next, and liars move it little."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from coterie.privacy.adaptive import WITHIN, farthest_share
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.errors import InvalidInput, Unprocessable
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture

DEVICES = ["dev_a", "dev_b"]
PATIENCE = 30.0


def adaptive(**privacy: float) -> dict[str, Any]:
    parameters = to_struct({"privacy": {"noise_multiplier": 2.0, "clip_quantile": 0.5} | privacy})
    return {"privacy": "uniform", "rounds": 3, "parameters": parameters, "training_json": '{"clip_norm": 4.0}'}


async def deliver_shares(client: Client, shares: list[float]) -> pb.WorkItem:
    """Deliver for every device with its noised bit and return the last work item."""
    for device, share in zip(DEVICES, shares, strict=True):
        item = await client.get_work(device, PATIENCE)
        await client.deliver(item, device, [0.1, 0.0, 0.0], metrics={WITHIN: share}, public_metrics=False)
    return item


def clip_of(item: pb.WorkItem) -> float:
    return float(json.loads(item.training_json)["clip_norm"])


async def test_every_round_tells_its_devices_the_norm_that_follows_from_the_last(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, **adaptive())
    await client.start_task(task.id)
    assert clip_of(await deliver_shares(client, [0.9, 0.7])) == 4.0
    second = await deliver_shares(client, [-0.3, 0.2])
    assert clip_of(second) == pytest.approx(4.0 * math.exp(-0.2 * 0.3))
    third = await client.get_work("dev_a", PATIENCE)
    assert clip_of(third) == pytest.approx(clip_of(second) * math.exp(0.2 * 0.55))
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=task.id, number=2))
    assert dict(detail.round.metrics) == pytest.approx({WITHIN: -0.05, "clip_norm": clip_of(second)})


async def test_a_restart_tells_the_same_norm(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, **adaptive())
    await client.start_task(task.id)
    await deliver_shares(client, [0.9, 0.7])
    before = clip_of(await client.get_work("dev_a", PATIENCE))
    await client.app.conductor.stop()
    client = await service.start()
    assert clip_of(await client.get_work("dev_a", PATIENCE)) == before != 4.0


async def test_liar_is_refused_beyond_bit_and_noise_and_shifts_norm_boundedly(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    task = await client.create(DEVICES, **adaptive())
    await client.start_task(task.id)
    item, most = await client.get_work("dev_a", PATIENCE), 0.5 + farthest_share(2.0)
    with pytest.raises(InvalidInput, match="more than a bit and the promised noise"):
        await client.deliver(item, "dev_a", [0.1, 0.0, 0.0], metrics={WITHIN: 1.01 * most}, public_metrics=False)
    await deliver_shares(client, [0.99 * most, 0.5])
    assert clip_of(await client.get_work("dev_a", PATIENCE)) == pytest.approx(4.0 * math.exp(-0.2))


async def test_an_update_longer_than_this_rounds_norm_and_noise_allow_is_refused(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, **adaptive())
    await client.start_task(task.id)
    item = await client.get_work("dev_a", PATIENCE)
    with pytest.raises(InvalidInput, match="norm"):
        await client.deliver(item, "dev_a", [200.0, 0.0, 0.0], metrics={WITHIN: 0.5}, public_metrics=False)


async def test_a_count_where_the_norm_stays_is_not_taken(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(DEVICES, privacy="uniform", parameters=to_struct({"privacy": {"noise_multiplier": 2.0}}))
    await client.start_task(task.id)
    item = await client.get_work("dev_a", PATIENCE)
    with pytest.raises(Unprocessable, match="leave it out"):
        await client.deliver(item, "dev_a", [0.1, 0.0, 0.0], metrics={WITHIN: 0.5}, public_metrics=True)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (adaptive(clip_quantile=1.5), "above 0 and below 1, not 1.5"),
        (adaptive(clip_rate=3.0), "above 0 and at most 1, not 3"),
        (adaptive() | {"privacy": "none"}, "privacy none takes none"),
        (adaptive() | {"mode": "asynchronous"}, "leave the mode out"),
    ],
)
async def test_a_norm_that_cannot_adapt_is_refused_with_what_to_do(
    service: ServiceFixture, changes: dict[str, Any], word: str
) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match=word):
        await client.create([], **changes)
