"""Aggregation before a far blob store: updates are read together, and nothing is read on the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from obstore.store import from_url

from services.kit.database.blobs import BlobStore
from tests.contract.aggregation.conftest import ServiceFixture

VALUES = {"dev_a": [1.0, 0.0, 2.0], "dev_b": [0.0, 1.0, 2.0], "dev_c": [1.0, 1.0, 1.0]}


@pytest.mark.parametrize("settings", ["sqlite"], indirect=True)
@pytest.mark.parametrize("restarted", [False, True])
async def test_updates_in_a_far_store_are_read_together_and_never_on_the_loop(
    service: ServiceFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """A read that waits until all the others are under way ends only if they are; after a restart the same at closing.

    A folder stands for the far store; it is read as one.
    """
    folder = tmp_path / "blobs"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(BlobStore, "from_settings", lambda _: BlobStore(from_url(folder.as_uri())))
    together: list[asyncio.Barrier] = [asyncio.Barrier(len(VALUES))]
    fetch, read = BlobStore.fetch, BlobStore.read

    async def fetched(self: BlobStore, *place: Any) -> memoryview:
        await asyncio.wait_for(together[-1].wait(), 60.0)
        return await fetch(self, *place)

    def read_elsewhere(self: BlobStore, *place: Any) -> memoryview:
        assert threading.current_thread() is not threading.main_thread(), "read on the event loop"
        return read(self, *place)

    monkeypatch.setattr(BlobStore, "fetch", fetched)
    monkeypatch.setattr(BlobStore, "read", read_elsewhere)
    client = await service.start()
    late = {"dev_late": [2.0, 2.0, -1.0]} if restarted else {}
    task = await client.create([*VALUES, *late], rounds=1)
    await client.start_task(task.id)
    items = {device: await client.get_work(device, wait=30.0) for device in VALUES}
    await asyncio.gather(*(client.deliver(items[device], device, values) for device, values in VALUES.items()))
    for device, values in late.items():
        await service.apps[0].stop()
        together.append(_Turns(1, len(VALUES)))
        client = await service.start()
        await client.deliver(await client.get_work(device, wait=30.0), device, values)
    ended = await client.finished(task.id)
    mean = np.mean(list((VALUES | late).values()), axis=0)
    np.testing.assert_allclose(await client.model(ended.model_digests[0]), mean, rtol=1e-6)


class _Turns(asyncio.Barrier):
    """Two barriers one after the other: for `first` waiters, then for `then`."""

    def __init__(self, first: int, then: int) -> None:
        super().__init__(then)
        self._alone = first

    async def wait(self) -> int:
        if self._alone:
            self._alone -= 1
            return 0
        return await super().wait()
