"""Attacks on what browsers open: the API's own page, and the console's connections."""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from services.console.__main__ import build_server
from services.console.settings import ConsoleSettings
from services.kit.http.http_limits import ConnectionTable
from tests.attacks.test_attacks_on_the_door import REQUEST, ask, connect, hang_up, rest_of, serving
from tests.contract.gateway.conftest import bearer, platform
from tests.contract.gateway.fakes import FakePlatform

__all__ = ["platform"]


async def test_the_docs_page_runs_only_its_own_scripts_and_refuses_frames(
    platform: FakePlatform, tmp_path: Path
) -> None:
    async with (
        serving(platform, tmp_path) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        page = await client.get("/docs")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-eval" not in policy
        assert "script-src 'self' 'unsafe-inline'" not in policy
        (inline,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
        assert b64encode(sha256(inline.encode()).digest()).decode() in policy
        assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert assets
        assert all(asset.startswith("/docs-assets/") for asset in assets)
        for path in ("/docs", "/openapi.json", assets[0], "/health/live", "/nowhere"):
            answer = await client.get(path, headers=bearer("device"))
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"


@asynccontextmanager
async def console(**limits: Any) -> AsyncIterator[tuple[int, ConnectionTable]]:
    """Port of a real console with these limits, and its connections. No gateway is behind it."""
    served = build_server(ConsoleSettings(console_port=0, gateway_url="http://127.0.0.1:9", **limits))
    task = asyncio.create_task(served._serve())
    while not served.started:  # noqa: ASYNC110 - uvicorn has a flag, not an event
        await asyncio.sleep(0.01)
    protocol: Any = served.config.http_protocol_class
    try:
        yield int(served.servers[0].sockets[0].getsockname()[1]), protocol.table
    finally:
        served.should_exit = True
        await task


async def test_console_reads_no_endless_header_and_keeps_no_silent_connection() -> None:
    async with console(header_seconds=0.5, max_connections_per_address=5) as (port, lines):
        reader, writer = await connect(port)
        writer.write(REQUEST + b"x: " + b"a" * 400_000)
        answered = await rest_of(reader)
        assert not answered or b"431" in answered
        await hang_up((reader, writer))
        silent = [await connect(port) for _ in range(5)]
        assert await ask(port) == 503
        assert all(b"408" in end for end in await asyncio.gather(*(rest_of(reader) for reader, _ in silent)))
        await hang_up(*silent)
        assert await ask(port) == 200
        upgrade = b"GET /_nicegui_ws/socket.io/ HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        secret = b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        reader, writer = await connect(port)
        writer.write(upgrade + secret)  # from a visitor who is not signed in
        assert (await rest_of(reader)).startswith(b"HTTP/1.1 403")
        await hang_up((reader, writer))
        async with asyncio.timeout(10):
            while lines.count:  # noqa: ASYNC110 - the server notices in its own time
                await asyncio.sleep(0.01)
        assert not lines.of_address
