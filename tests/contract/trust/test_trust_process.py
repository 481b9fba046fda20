"""The registry as a process: starts on an empty folder, drains on SIGTERM, loses no heartbeat."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_api.trust.v1.trust_pb2_grpc import RegistryStub, TrustStub
from services.kit.database.engine import DatabaseAway
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import SERVICE, set_principal
from services.kit.runtime.settings import ServiceSettings
from services.trust.store import devices
from services.trust.usecases.heartbeats import Heartbeats
from tests.contract.trust.conftest import START, World

if TYPE_CHECKING:
    from coterie_api.trust.v1.trust_pb2_grpc import RegistryAsyncStub


async def one_row() -> AsyncIterator[pb.ImportChunk]:
    yield pb.ImportChunk(
        header=pb.ImportHeader(name="town", owner_name="Town"),
        rows=[pb.ImportRow(line=1, device=pb.Device(name="lamp"))],
    )


async def only_device(registry: RegistryAsyncStub) -> pb.Device:
    return (await registry.ListDevices(pb.ListDevicesRequest(), wait_for_ready=True)).devices[0]


async def serve(folder: Path) -> asyncio.subprocess.Process:
    environment = {**os.environ, "COTERIE_DATA_DIR": str(folder)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.trust", env=environment, stderr=asyncio.subprocess.PIPE
    )


async def test_a_process_drains_on_sigterm_and_keeps_heartbeats_and_secrets(tmp_path: Path) -> None:
    set_principal(SERVICE)
    settings = ServiceSettings(data_dir=tmp_path)
    for start in (1, 2):
        process = await serve(tmp_path)
        async with open_channel(settings, settings.trust_address) as channel:
            registry = RegistryStub(channel)
            if start == 1:
                await TrustStub(channel).Import(one_row(), wait_for_ready=True)
                lamp = await only_device(registry)
                await registry.Heartbeat(pb.HeartbeatRequest(device_ids=[lamp.id]))
            else:
                assert (await only_device(registry)).last_seen_at > 0
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0, errors.decode()
        assert (tmp_path / "admin.key").read_text().strip() not in errors.decode()


async def test_heartbeats_wait_for_a_database_that_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = await world.devices(1)
    record = await world.registry.GetDevice(pb.GetDeviceRequest(device_id=device))
    assert record.last_seen_at == 0.0
    heartbeats: Heartbeats = world.app.heartbeats
    await heartbeats.hear([device], START + 5)
    with monkeypatch.context() as broken:

        async def away(*_: object) -> None:
            raise DatabaseAway("gone")

        broken.setattr(devices, "set_last_seen", away)
        with pytest.raises(DatabaseAway):
            await heartbeats.flush()
    await heartbeats.hear([device], START + 9)
    await heartbeats.flush()
    assert (await world.registry.GetDevice(pb.GetDeviceRequest(device_id=device))).last_seen_at == START + 9
