"""Old tasks' details are forgotten on demand, and nothing that is owed, learnt or still asked for."""

from __future__ import annotations

from typing import Any

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.usecases import pruning
from services.kit.errors import InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, eventually


async def ended(client: Client, name: str, **changes: Any) -> pb.Task:
    """A task of one round and two devices that is over, with everything settled."""
    task = await client.create(["dev_a", "dev_b"], rounds=1, name=name, **changes)
    await client.start_task(task.id)
    for device in ("dev_a", "dev_b"):
        item = await client.get_work(device, wait=30.0)
        await client.deliver(item, device, [1.0, float(len(name)), 0.0 if device == "dev_a" else 1.0])
    result = await client.finished(task.id)
    await eventually(lambda: _is_released(client, task.id))
    return result


async def _is_released(client: Client, task_id: str) -> bool:
    async with client.app.database.reading() as tx:
        query = f"SELECT count(*) FROM tasks WHERE id = '{task_id}' AND released"
        return bool((await tx.exec_driver_sql(query)).scalar_one())


async def prune(
    client: Client, *, dry_run: bool = False, older: float = 3600.0, task_id: str = ""
) -> pb.PruneTasksReply:
    set_principal(Principal("admin", "adm_1"))
    request = pb.PruneTasksRequest(dry_run=dry_run, older_than_seconds=older, task_id=task_id)
    return await client.tasks.PruneTasks(request)


async def blobs(service: ServiceFixture) -> set[str]:
    return {blob.name async for page in service.blobs.every() for blob in page}


async def test_pruning_removes_device_history_and_keeps_models_and_open_tasks(
    service: ServiceFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "LEAST_AGE_SECONDS", -60.0)  # so that what has just ended is old enough
    client = await service.start()
    old = await ended(client, "old", keep_rounds=5)
    running = await client.create(["dev_a", "dev_b"], rounds=2, name="running")
    await client.start_task(running.id)
    await client.deliver(await client.get_work("dev_a", wait=30.0), "dev_a", [9.0, 9.0, 9.0])
    before = await blobs(service)
    looked = await prune(client, dry_run=True, older=-30.0)
    assert (looked.tasks, looked.participations, looked.blobs) == (1, 2, 2)
    assert looked.events >= 3
    assert await blobs(service) == before
    assert await prune(client, older=-30.0) == looked
    assert len(before - await blobs(service)) == 2
    assert await prune(client, older=-30.0) == pb.PruneTasksReply()
    retained = await client.get_task(old.id)
    assert (retained.state, list(retained.model_digests)) == (words.TASK_STATE_FINISHED, list(old.model_digests))
    assert (await client.model(retained.model_digests[0])).tolist() == [1.0, 3.0, 0.5]
    rounds = await client.tasks.ListRounds(pb.ListRoundsRequest(task_id=old.id))
    assert [round_.metrics["accuracy"] for round_ in rounds.rounds] == [0.5]
    item = await client.get_work("dev_b", wait=30.0)
    await client.deliver(item, "dev_b", [1.0, 1.0, 1.0])
    await eventually(lambda: _is_in_round(client, running.id, 2))


async def _is_in_round(client: Client, task_id: str, number: int) -> bool:
    return (await client.get_task(task_id)).round == number


async def test_a_task_that_ended_lately_or_is_another_one_is_left_alone(service: ServiceFixture) -> None:
    client = await service.start()
    task = await ended(client, "young")
    assert await prune(client) == pb.PruneTasksReply()
    assert await prune(client, task_id=task.id) == pb.PruneTasksReply()
    with pytest.raises(InvalidInput, match="may still be asked about"):
        await prune(client, older=10.0)
    with pytest.raises(NotFound):
        await prune(client, task_id="tsk_nobody")
    set_principal(Principal("publisher", "pub_1"))
    with pytest.raises(PermissionDenied):
        await client.tasks.PruneTasks(pb.PruneTasksRequest(older_than_seconds=4000.0))
