"""What a task with noise takes beside its updates: no figure that may have been computed on private data."""

from __future__ import annotations

from typing import Any

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.kit.errors import Unprocessable
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.conftest import Client, ServiceFixture

NOISED: dict[str, Any] = {"privacy": "uniform", "parameters": to_struct({"privacy": {"noise_multiplier": 2.0}})}


@pytest.fixture
async def begun(service: ServiceFixture) -> tuple[Client, pb.WorkItem]:
    client = await service.start()
    task = await client.create(["dev_1", "dev_2"], **NOISED)
    await client.start_task(task.id)
    return client, await client.get_work("dev_1", 30.0)


async def test_old_device_sending_loss_beside_noise_is_refused_with_a_remedy(
    begun: tuple[Client, pb.WorkItem],
) -> None:
    client, item = begun
    with pytest.raises(Unprocessable, match=r"leave the metrics out.*public_test_data=True"):
        await client.deliver(item, "dev_1", [0.1, 0.0, 0.0], metrics={"loss": 0.3}, public_metrics=False)
    assert (await client.get_work("dev_1", 30.0)).task_id == item.task_id  # it may still deliver without


async def test_without_figures_or_with_public_ones_a_noised_update_is_taken(
    begun: tuple[Client, pb.WorkItem],
) -> None:
    client, item = begun
    bare = await client.deliver(item, "dev_1", [0.1, 0.0, 0.0], metrics={}, public_metrics=False)
    other = await client.get_work("dev_2", 30.0)
    public = await client.deliver(other, "dev_2", [0.0, 0.1, 0.0], metrics={"accuracy": 0.75}, public_metrics=True)
    assert (bare.outcome, public.outcome) == (words.RECEPTION_ACCEPTED, words.RECEPTION_ACCEPTED)
    await client.get_work("dev_1", 30.0)  # of the next round: the first is closed
    set_principal(Principal("publisher", "pub_1"))
    detail = await client.tasks.GetRound(pb.GetRoundRequest(task_id=item.task_id, number=1))
    assert dict(detail.round.metrics) == {"accuracy": 0.75}


async def test_a_report_that_brings_private_figures_alone_is_refused_as_well(begun: tuple[Client, pb.WorkItem]) -> None:
    client, item = begun
    with pytest.raises(Unprocessable, match="would bypass its noise"):
        await client.deliver(
            item, "dev_1", [0.1], form=words.FORM_REPORT, digest="", metrics={"online_loss": 1.0}, public_metrics=False
        )


async def test_where_no_noise_is_promised_figures_need_no_word(service: ServiceFixture) -> None:
    client = await service.start()
    task = await client.create(["dev_1"])
    await client.start_task(task.id)
    item = await client.get_work("dev_1", 30.0)
    taken = await client.deliver(item, "dev_1", [0.1, 0.0, 0.0], metrics={"loss": 0.3}, public_metrics=False)
    assert taken.outcome == words.RECEPTION_ACCEPTED
