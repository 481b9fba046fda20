"""A task whose models and updates are in S3: reads at the same time, deletes together, the same bits as in a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from services.kit.database.blobs import BlobStore
from tests.contract.aggregation.conftest import ServiceFixture
from tests.contract.s3_server import S3Server, s3_server

DEVICES = [f"dev_{number:02}" for number in range(12)]
VALUES = {device: [number / 3.0, 1.0, -float(number)] for number, device in enumerate(DEVICES)}
ROUNDS = 3


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as result:
        yield result


async def played(service: ServiceFixture, name: str) -> bytes:
    """The last model of a task of all devices."""
    client = await service.start()
    task = await client.create(DEVICES, rounds=ROUNDS, name=name)
    await client.start_task(task.id)
    for _ in range(ROUNDS):
        items = await asyncio.gather(*(client.get_work(device, wait=30.0) for device in DEVICES))
        await asyncio.gather(
            *(client.deliver(item, device, VALUES[device]) for item, device in zip(items, DEVICES, strict=True))
        )
    ended = await client.finished(task.id)
    model = await client.model(ended.model_digests[0])
    await service.apps.pop().stop()
    return np.asarray(model).tobytes()


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
async def test_rounds_in_a_slow_s3_make_the_same_model_and_ask_together(
    service: ServiceFixture, server: S3Server
) -> None:
    calm = await played(service, "near")
    settings = service.settings.model_copy(update={"blob_url": f"s3://{server.bucket}/platform"})
    far = replace(service, settings=settings, blobs=BlobStore.from_settings(settings))
    server.delay_seconds = 0.1
    assert await played(far, "far") == calm
    assert server.at_once["GET"] > 1, "updates were read one after the other"
    assert server.asked["POST"] + server.asked["DELETE"] <= 2 * ROUNDS, "blobs were deleted one by one"
    stored = {blob.name async for page in far.blobs.every() for blob in page}
    assert len(stored) <= 1 + ROUNDS, "updates of rounds that are done are still there"
