"""Responses over real connections keep their order and lose nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from services.kit.http.http_limits import limited
from services.kit.runtime.settings import EdgeSettings

LARGE = b"x" * 3_000_000
"""More than a socket's buffers hold."""


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    path = scope["path"]
    body = {"/large": LARGE, "/short": b"whole"}.get(path, path.encode())
    pieces = [body[start : start + 70_000] for start in range(0, len(body), 70_000)]
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    for piece in pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def _served() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(_app, loop="uvloop", http=limited(EdgeSettings()), lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


def _ask(path: str, *, last: bool = False) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: here\r\n{'connection: close' if last else 'accept: */*'}\r\n\r\n".encode()


async def test_large_and_concurrent_answers_keep_order_and_lose_nothing() -> None:
    async with _served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_ask("/one") + _ask("/large") + _ask("/two", last=True))
        response = await reader.read()
        writer.close()
        await writer.wait_closed()
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in response.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert bodies == [b"/one", LARGE, b"/two"]
