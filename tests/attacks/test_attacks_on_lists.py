"""Attacks on public lists by items too large to list."""

import json

import pytest

from coterie.records.enums import TaskState
from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.aggregation.domain.records import Task
from services.aggregation.domain.tasks import (
    MAX_DESCRIPTION_CHARACTERS,
    MAX_PARAMETERS_BYTES,
    MAX_TRAINING_BYTES,
    TaskSpecification,
)
from services.aggregation.store import tasks
from services.kit.database.engine import Database
from services.kit.errors import InvalidInput
from services.kit.rpc.paging import MOST_BYTES
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture, service

__all__ = ["service"]
MEBIBYTE = 1 << 20


def hints(size: int) -> str:
    """Return a JSON object of exactly this number of bytes."""
    return json.dumps({"custom": {"note": "x" * (size - len(json.dumps({"custom": {"note": ""}})))}})


async def listed(client: Client, limit: int = 500) -> list[list[str]]:
    """Names of all tasks, by page, as a publisher sees them."""
    set_principal(Principal("publisher", "pub_1"))
    pages, cursor = [], ""
    while True:
        reply = await client.tasks.ListTasks(pb.ListTasksRequest(limit=limit, cursor=cursor))
        assert reply.ByteSize() < MOST_BYTES + 2 * MEBIBYTE
        pages.append([task.specification.name for task in reply.tasks])
        cursor = reply.next_cursor
        if not cursor:
            return pages


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_oversized_hints_are_refused_and_hints_at_the_limit_are_not(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    for size in (MEBIBYTE, MAX_TRAINING_BYTES + 1):
        with pytest.raises(InvalidInput, match=f"at most {MAX_TRAINING_BYTES} are taken"):
            await client.create([], training_json=hints(size))
    for size in (MEBIBYTE, MAX_PARAMETERS_BYTES + 1):
        large = to_struct({"survey": {"question": "?" * size}})
        with pytest.raises(InvalidInput, match=f"at most {MAX_PARAMETERS_BYTES} are taken"):
            await client.create([], parameters=large)
    await client.create([], name="honest", training_json=hints(MAX_TRAINING_BYTES))
    assert await listed(client) == [["honest"]]


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_a_task_with_deep_hints_or_an_endless_description_is_refused(service: ServiceFixture) -> None:
    client = await service.start()
    with pytest.raises(InvalidInput, match="nested too deeply"):
        await client.create([], training_json='{"a":' + "[" * 5000 + "]" * 5000 + "}")
    with pytest.raises(InvalidInput, match=f"at most {MAX_DESCRIPTION_CHARACTERS}"):
        await client.create([], description="x" * (MAX_DESCRIPTION_CHARACTERS + 1))
    assert (await client.create([], description="x" * MAX_DESCRIPTION_CHARACTERS)).id


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_oversized_old_tasks_do_not_break_the_task_list(
    service: ServiceFixture,
) -> None:
    client = await service.start()
    database = Database(service.settings.database_for("aggregation"), "aggregation")
    names = [f"task {number:02}" for number in range(75)]
    async with database.writing() as tx:
        for number, name in enumerate(names):
            spec = TaskSpecification(name, training_json=hints(MEBIBYTE))
            await tasks.add_task(
                tx, Task(f"tsk_{number:02}", "pub_1", spec, TaskState.CREATED, "", 0, 1.0, 0.0, 0.0, False, 0)
            )
    await database.close()
    pages = await listed(client)
    assert [name for page in pages for name in page] == names[::-1]
    assert len(pages) > 1


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_a_list_of_small_tasks_is_cut_by_number_alone(service: ServiceFixture) -> None:
    client = await service.start()
    for number in range(5):
        await client.create([], name=f"task {number}")
    assert await listed(client, limit=2) == [["task 4", "task 3"], ["task 2", "task 1"], ["task 0"]]
    assert await listed(client) == [[f"task {number}" for number in (4, 3, 2, 1, 0)]]
