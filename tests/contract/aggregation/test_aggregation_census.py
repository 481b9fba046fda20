"""The gauge of rounds by state."""

from __future__ import annotations

import time

from prometheus_client import REGISTRY

from coterie.records.enums import TaskState
from services.aggregation.rounds.round_gauge import RoundGauge
from services.aggregation.store import tasks
from tests.contract.aggregation.conftest import Client, ServiceFixture


async def counted(client: Client) -> dict[str, float | None]:
    await RoundGauge(client.app.database).count()
    states = ("open", "closing", "settling", "waiting")
    return {state: REGISTRY.get_sample_value("coterie_rounds", {"state": state}) for state in states}


async def test_running_tasks_are_counted_by_the_state_of_their_round(service: ServiceFixture) -> None:
    client = await service.start()
    assert await counted(client) == {"open": 0, "closing": 0, "settling": 0, "waiting": 0}
    await client.create(["dev_1"], name="created")
    lonely = await client.create([], name="lonely")  # all devices have left it since its start
    async with client.app.database.writing() as tx:
        await tasks.change_task(tx, lonely.id, state=TaskState.RUNNING, started_at=time.time())
    busy = await client.create(["dev_1", "dev_2"], name="busy", rounds=1)
    await client.start_task(busy.id)
    item = await client.get_work("dev_1")
    assert await counted(client) == {"open": 1, "closing": 0, "settling": 0, "waiting": 1}
    for device in ("dev_1", "dev_2"):
        await client.deliver(item, device, [1.0, 2.0, float(device[-1])])
    await client.finished(busy.id)
    assert await counted(client) == {"open": 0, "closing": 0, "settling": 0, "waiting": 1}
