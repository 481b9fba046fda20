"""Secure sums on several aggregation servers: one committee, one sum, and no clerk is called where it does not wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from coterie_api.enums.v1 import enums_pb2 as words
from services.aggregation.secure_sums.coordinator import Coordinator
from services.kit.rpc.principal import Principal, set_principal
from tests.contract.aggregation.committee import Committee
from tests.contract.aggregation.conftest import Client, ServiceFixture
from tests.contract.aggregation.test_aggregation_sums import (
    DEVICES,
    change_of,
    clear_model,
    events_of,
    secure_task,
    weight_of,
)

POSTGRESQL = pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
"""Replicas share a PostgreSQL."""


async def sleeps(replica: Client, key: str) -> bool:
    """Whether a call waits for this key."""
    return key in replica.app.notifier._waiting


@POSTGRESQL
async def test_two_replicas_share_a_sum_and_merge_to_the_same_bits(service: ServiceFixture, tmp_path: Path) -> None:
    one, two = await service.start("one"), await service.start("two")
    people = Committee.of(service, one, tmp_path, DEVICES)
    task_id = await secure_task(one)
    await people.until_work("dev_a")
    for at, device in enumerate(DEVICES):
        people.client = (one, two)[at % 2]
        await people.deliver(device, change_of(device), weight=weight_of(device))
    people.client = two
    ended = await people.finish(task_id)
    assert ended.state == words.TASK_STATE_FINISHED, ended.reason
    assert (await one.model(ended.model_digests[0])).tobytes() == await clear_model(one, DEVICES)


async def test_a_sum_has_one_committee_though_two_replicas_call_clerks_at_once(
    service: ServiceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = Coordinator._choose

    async def choose_twice(self: Coordinator, *seen: Any) -> None:
        """Both replicas have seen a sum without clerks."""
        await asyncio.gather(choose(self, *seen), choose(self, *seen))

    monkeypatch.setattr(Coordinator, "_choose", choose_twice)
    client = await service.start()
    people = Committee.of(service, client, tmp_path, DEVICES)
    task_id = await secure_task(client)
    await people.round({device: change_of(device) for device in DEVICES}, weight_of)
    assert (await people.finish(task_id)).state == words.TASK_STATE_FINISHED
    assert len(await events_of(client, task_id, words.EVENT_KIND_SUM_COMMITTEE_SELECTED)) == 1


@POSTGRESQL
async def test_clerk_that_waits_at_another_replica_is_woken_when_sum_counts(
    service: ServiceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.aggregation.usecases.sums.LOOK_SECONDS", 600.0)  # no look without a notification
    one, two = await service.start("one"), await service.start("two")
    people = Committee.of(service, one, tmp_path, DEVICES)
    await secure_task(one)
    await people.until_work("dev_a")
    for device in DEVICES[:-1]:
        await people.deliver(device, change_of(device), weight=weight_of(device))
    set_principal(Principal("device", "dev_a"))
    asked = pb.ListDutiesRequest(device_id="dev_a", wait_seconds=30.0)
    waiting = asyncio.ensure_future(two.sums.ListDuties(asked, timeout=60))
    await people.attend(lambda: sleeps(two, "duties:dev_a"), among=())
    await people.deliver(DEVICES[-1], change_of(DEVICES[-1]), weight=weight_of(DEVICES[-1]))
    assert [duty.kind for duty in (await waiting).duties] == [words.DUTY_KIND_READY_CHECK]
