"""Attacks on a task's end: figures are devices' claims, and it takes more than half of the owners to end it by them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.errors import InvalidInput
from services.kit.rpc.principal import Principal, set_principal
from tests.attacks.test_attacks_on_weights import SQLITE
from tests.contract.aggregation.conftest import Client, ServiceFixture, service

__all__ = ["service"]

HONEST = {"dev_a": 0.5, "dev_b": 0.55, "dev_c": 0.6, "dev_d": 0.65}
TARGET = pb.Stop(metric="accuracy", at=0.8)


async def play(
    client: Client,
    stop: pb.Stop,
    values: Mapping[str, float | None],
    owners: Mapping[str, str] | None = None,
    rounds: int = 3,
) -> pb.Task:
    """Run rounds of three until the task ends; each device reports the same of every version."""
    owners, metric = owners or {}, stop.metric
    task = await client.create([], rounds=3, stop=stop)
    for device in values:
        set_principal(Principal("device", device, owner_id=owners.get(device, "")))
        await client.tasks.Enrol(pb.EnrolRequest(task_id=task.id, device_id=device, samples=10))
    await client.start_task(task.id)
    for _ in range(rounds):
        for device, value in values.items():
            item = await client.get_work(device)
            claims = 1e9 if device.startswith("liar") else 10.0
            figures = {} if value is None else {metric: value, "samples": claims}
            await client.deliver(item, device, [1.0, 0.0, 0.0], metrics=figures)
    return await client.finished(task.id)


@SQLITE
@pytest.mark.parametrize("lie", [1.0, 2.0, 1e308])
async def test_one_liar_of_five_ends_no_task_by_a_false_accuracy(service: ServiceFixture, lie: float) -> None:
    client = await service.start()
    ended = await play(client, TARGET, HONEST | {"liar": lie})
    assert ended.reason == "all 3 rounds are done"


@SQLITE
async def test_one_liar_of_five_ends_no_task_by_a_loss_below_nothing(service: ServiceFixture) -> None:
    client = await service.start()
    ended = await play(client, pb.Stop(metric="loss", at=0.1), HONEST | {"liar": -1.0})
    assert ended.reason == "all 3 rounds are done"


@SQLITE
async def test_a_figure_that_is_no_number_is_refused(service: ServiceFixture) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match="finite value, not nan"):
        await play(client, TARGET, {"liar": math.nan})


@SQLITE
@pytest.mark.parametrize("lie", [-1.0, -1e308])
async def test_one_liar_of_five_keeps_no_task_from_its_end(service: ServiceFixture, lie: float) -> None:
    client = await service.start()
    honest = {device: value + 0.3 for device, value in HONEST.items()}
    ended = await play(client, TARGET, honest | {"liar": lie}, rounds=1)
    assert ended.reason.startswith("accuracy reached 0.85 in version 0, the target was at least 0.8; 1 of 3 ")


@SQLITE
async def test_a_liar_that_alone_tells_anything_ends_no_task(service: ServiceFixture) -> None:
    client = await service.start()
    ended = await play(client, TARGET, dict.fromkeys(HONEST) | {"liar": 1.0})
    assert ended.reason.startswith(
        "all 3 rounds are done; no version's accuracy could stop it: it counts when at least"
    )


@SQLITE
async def test_many_devices_of_one_owner_are_one_voice_at_the_end(service: ServiceFixture) -> None:
    """Six of ten devices say 1.0, and they are one owner's of five."""
    client = await service.start()
    liars = {f"liar_{place}": 1.0 for place in range(6)}
    ended = await play(client, TARGET, HONEST | liars, dict.fromkeys(liars, "own_liar"))
    assert ended.reason == "all 3 rounds are done"


@SQLITE
async def test_one_liar_hurries_no_task_that_waits_for_a_better_version(service: ServiceFixture) -> None:
    """Devices get better; the liar says that version 0 was perfect, and nothing since."""
    client = await service.start()
    stop = pb.Stop(metric="accuracy", patience=1)
    task = await client.create([*HONEST, "liar"], rounds=3, stop=stop)
    await client.start_task(task.id)
    for number in range(3):
        for device, value in (HONEST | {"liar": 1.0 - number}).items():
            item = await client.get_work(device)
            better = value if device == "liar" else value + 0.1 * number
            await client.deliver(item, device, [1.0, 0.0, 0.0], metrics={"accuracy": better})
    ended = await client.finished(task.id)
    assert (ended.reason, ended.best_version) == ("all 3 rounds are done", 2)
