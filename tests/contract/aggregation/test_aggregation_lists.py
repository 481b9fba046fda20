"""Lists of tasks: complete, and as cheap for many tasks as for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.database.engine import Database
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Collect queries about what belongs to tasks; a replica's watch also queries the tasks themselves."""
    queries: list[str] = []

    def collect(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if any(f"FROM {table}" in statement for table in ("enrolments", "models", "events")):
            queries.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", collect)
    yield queries
    sa.event.remove(database.engine, "before_cursor_execute", collect)


async def listed(client: Client, limit: int) -> tuple[list[pb.Task], int]:
    set_principal(Principal("publisher", "pub_1"))
    with statements(client.app.database) as seen:
        reply = await client.tasks.ListTasks(pb.ListTasksRequest(limit=limit))
    return list(reply.tasks), len(seen)


async def test_a_list_of_tasks_costs_the_same_however_long_it_is(service: ServiceFixture) -> None:
    client = await service.start()
    for number in range(12):
        devices = [f"dev_{k}" for k in range(number % 3)]
        await client.create(devices, name=f"t{number}")
    one, cost_of_one = await listed(client, 1)
    many, cost_of_many = await listed(client, 12)
    assert (len(one), len(many)) == (1, 12)
    assert cost_of_one == cost_of_many == 4
    alone = [await client.get_task(task.id) for task in many]
    assert many == alone
    assert {task.enrolled for task in many} == {0, 1, 2}
    assert all(len(task.model_digests) == 1 and task.last_event for task in many)
