"""Attacks on the gateway by anonymous callers: too large, too slow, too many requests, and guessed keys."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from coterie_api.trust.v1 import trust_pb2
from coterie_cli.processes import free_ports
from services.gateway.__main__ import server
from tests.contract.gateway.conftest import bearer, platform
from tests.contract.gateway.fakes import FakePlatform, UnknownKey

__all__ = ["platform"]
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"GET /health/live HTTP/1.1\r\nhost: x\r\n"


@asynccontextmanager
async def serving(platform: FakePlatform, folder: Path, **limits: Any) -> AsyncIterator[int]:
    """Port of a real gateway with these limits."""
    gateway = server(platform.settings(folder, **limits))
    task = asyncio.create_task(gateway._serve())
    while not gateway.started:  # noqa: ASYNC110 - uvicorn has a flag, not an event
        await asyncio.sleep(0.01)
    try:
        yield int(gateway.servers[0].sockets[0].getsockname()[1])
    finally:
        gateway.should_exit = True
        await task


async def connect(port: int) -> Ends:
    return await asyncio.open_connection("127.0.0.1", port)


async def hang_up(*ends: Ends) -> None:
    """Closes connections for good, whatever is still unsent: `close` alone would wait for the other side to read it."""
    for _, writer in ends:
        writer.transport.abort()
    for _, writer in ends:
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ask(port: int) -> int:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        return (await client.get("/health/live")).status_code


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """Everything until the other side hangs up, however it does."""
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "beginning",
    [
        REQUEST + b"x: ",
        b"GET /",
        b"POST /v1/devices HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nx: ",
    ],
    ids=["header", "path", "trailer"],
)
async def test_fifty_megabytes_of_header_are_not_read(platform: FakePlatform, tmp_path: Path, beginning: bytes) -> None:
    async with serving(platform, tmp_path) as port:
        reader, writer = await connect(port)
        sent, piece = 0, b"a" * 65536
        writer.write(beginning)
        used = time.process_time()
        try:
            while sent < 50 << 20:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
        except ConnectionError:
            pass  # hung up on, as hoped
        assert sent < 40 << 20  # the rest waited in buffers of the kernel
        assert time.process_time() - used < 2.0
        await rest_of(reader)
        await hang_up((reader, writer))
        assert await ask(port) == 200


async def test_headers_over_the_limit_get_431_and_long_ones_pass(platform: FakePlatform, tmp_path: Path) -> None:
    async with serving(platform, tmp_path) as port:
        for size, status in ((40_000, b"200"), (400_000, b"431")):
            reader, writer = await connect(port)
            writer.write(REQUEST + b"x: " + b"a" * size)
            if size < 65536:
                writer.write(b"\r\nconnection: close\r\n\r\n")
            answered = await rest_of(reader)
            await hang_up((reader, writer))
            assert not answered or answered.split()[1] == status
            assert answered or status == b"431"


async def test_silent_and_trickling_connections_are_closed_in_time(platform: FakePlatform, tmp_path: Path) -> None:
    async with serving(platform, tmp_path, header_seconds=0.3, body_seconds=0.3) as port:
        silent, trickling, blank, stopped = [await connect(port) for _ in range(4)]
        stopped[1].write(b"POST /v1/devices HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        blank[1].write(REQUEST + b"\r\n")
        await blank[0].readuntil(b"\r\n\r\n")

        async def trickle() -> None:
            for byte in REQUEST * 100:
                trickling[1].write(bytes([byte]))
                await asyncio.sleep(0.02)

        async def send_blanks() -> None:
            for _ in range(1000):
                blank[1].write(b"\r\n")
                await asyncio.sleep(0.02)

        slow = [asyncio.create_task(trickle()), asyncio.create_task(send_blanks())]
        ends = await asyncio.gather(*(rest_of(reader) for reader, _ in (silent, trickling, blank, stopped)))
        for task in slow:
            task.cancel()
        assert b"408" in ends[0]
        await hang_up(silent, trickling, blank, stopped)


async def test_a_slow_answer_and_an_honest_pause_are_not_mistaken_for_silence(
    platform: FakePlatform, tmp_path: Path
) -> None:
    async def think(_: Any) -> Any:
        await asyncio.sleep(0.8)
        return platform.keys["device-key"]

    platform.replies["Authenticate"] = think
    async with (
        serving(platform, tmp_path, header_seconds=0.3, body_seconds=0.3) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer("device")) as client,
    ):
        for _ in range(2):
            answer = await client.get("/v1/me")
            assert answer.status_code == 200
            first = answer.extensions["network_stream"].get_extra_info("client_addr")
            await asyncio.sleep(0.5)
        again = (await client.get("/health/live")).extensions["network_stream"].get_extra_info("client_addr")
        assert first == again  # kept alive between requests


async def test_silent_connections_make_room_for_an_honest_one(platform: FakePlatform, tmp_path: Path) -> None:
    async with serving(platform, tmp_path, max_connections=20) as port:
        silent = [await connect(port) for _ in range(60)]
        assert [await ask(port) for _ in range(3)] == [200] * 3
        await hang_up(*silent)


async def test_gateway_of_1024_files_survives_1100_silent_connections(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environment = os.environ | {"COTERIE_GATEWAY_PORT": str(port), "COTERIE_DATA_DIR": str(tmp_path)}
    scarce = 'ulimit -n 1024 && exec "$0" -m services.gateway'  # the hard limit too: there are no more to ask for
    gateway = await asyncio.create_subprocess_exec("sh", "-c", scarce, sys.executable, env=environment)
    try:
        while True:
            try:
                silent = [await connect(port)]
                break
            except ConnectionError:
                assert gateway.returncode is None
                await asyncio.sleep(0.05)
        silent += [await connect(port) for _ in range(1100)]
        assert [await ask(port) for _ in range(3)] == [200] * 3
        await hang_up(*silent)
    finally:
        gateway.terminate()
        await gateway.wait()


async def test_a_connection_at_work_is_never_closed_for_a_new_one(platform: FakePlatform, tmp_path: Path) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def hold(_: Any) -> Any:
        asked.set()
        await go.wait()
        return platform.keys["device-key"]

    platform.replies["Authenticate"] = hold
    async with (
        serving(platform, tmp_path, max_connections=1) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=bearer("device")) as client,
    ):
        working = asyncio.create_task(client.get("/v1/me"))
        await asked.wait()
        assert await ask(port) == 503
        go.set()
        assert (await working).status_code == 200
        assert await ask(port) == 200  # the first is idle now, and makes room


async def test_an_address_has_its_share_of_connections(platform: FakePlatform, tmp_path: Path) -> None:
    async with serving(platform, tmp_path, max_connections_per_address=5) as port:
        held = [await connect(port) for _ in range(5)]
        sixth = await connect(port)
        response = (await rest_of(sixth[0])).decode()
        assert response.startswith("HTTP/1.1 503")
        problem = json.loads(response.partition("\r\n\r\n")[2])
        assert problem["reason"] == "too_many_connections"
        assert "COTERIE_MAX_CONNECTIONS_PER_ADDRESS" in problem["detail"]
        held[0][1].write(REQUEST + b"connection: close\r\n\r\n")
        assert (await rest_of(held[0][0])).startswith(b"HTTP/1.1 200")
        assert await ask(port) == 200
        await hang_up(*held, sixth)


async def test_guessed_keys_are_throttled_and_a_neighbour_s_good_key_is_not(
    platform: FakePlatform, tmp_path: Path
) -> None:
    async with (
        serving(platform, tmp_path, max_wrong_keys=10, key_cache_seconds=0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/v1/me", headers=bearer("device"))).status_code == 200
        guesses = [await client.get("/v1/me", headers=bearer(f"guess{number}")) for number in range(30)]
        assert [guess.status_code for guess in guesses] == [401] * 10 + [503] * 20
        assert guesses[-1].json()["reason"] == "too_many_wrong_keys"
        assert len(platform.called("Authenticate")) == 11
        assert (await client.get("/v1/me", headers=bearer("device"))).status_code == 200


async def test_guessed_enrolment_tokens_are_throttled_like_keys(platform: FakePlatform, tmp_path: Path) -> None:
    """Registering needs no key, and each try is a transaction of the registry."""

    async def register(asked: trust_pb2.RegisterDeviceRequest) -> trust_pb2.RegisterDeviceReply:
        if asked.token != "ct_good":
            raise UnknownKey("the enrolment token is unknown or expired")
        return trust_pb2.RegisterDeviceReply()

    platform.replies["RegisterDevice"] = register
    key = "A" * 43 + "="
    body = {"name": "phone", "signing_key": key, "sealing_key": key, "proof": "A" * 86 + "=="}
    async with (
        serving(platform, tmp_path, max_wrong_keys=10) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        good = [await client.post("/v1/devices", json=body | {"token": "ct_good"}) for _ in range(15)]
        assert {answer.status_code for answer in good} == {201}  # the honest path: a fleet behind one address
        guesses = [await client.post("/v1/devices", json=body | {"token": f"ct_{number}"}) for number in range(30)]
        assert [guess.status_code for guess in guesses] == [401] * 10 + [503] * 20
        assert guesses[-1].json()["reason"] == "too_many_wrong_keys"
        assert len(platform.called("RegisterDevice")) == 15 + 10
        assert (await client.get("/v1/me", headers=bearer("guess"))).status_code == 503  # counted together
