"""A gateway before fake services: in process for most tests, over a real socket where bodies stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from services.gateway.__main__ import server
from services.gateway.app import build
from tests.contract.gateway.fakes import FakePlatform


@pytest.fixture
async def platform(tmp_path: Path) -> AsyncIterator[FakePlatform]:
    """Fake services."""
    platform = await FakePlatform.start(tmp_path)
    yield platform
    await platform.server.stop()


@pytest.fixture
async def app(platform: FakePlatform, tmp_path: Path) -> AsyncIterator[FastAPI]:
    """The gateway's application, started."""
    app = build(platform.settings(tmp_path, max_json_bytes=4096))
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


@pytest.fixture
def app_stopper() -> asyncio.Event:
    """Set it, and the served gateway stops."""
    return asyncio.Event()


@pytest.fixture
async def served(platform: FakePlatform, tmp_path: Path, app_stopper: asyncio.Event) -> AsyncIterator[int]:
    """Port of the gateway under uvicorn."""
    gateway = server(platform.settings(tmp_path, max_model_bytes=8 << 20))
    # Not `serve`, which would take the test process's signal handlers.
    task = asyncio.create_task(gateway._serve())
    while not gateway.started:  # noqa: ASYNC110 - uvicorn has a flag, not an event
        await asyncio.sleep(0.01)

    async def stop() -> None:
        await app_stopper.wait()
        gateway.should_exit = True

    stopping = asyncio.create_task(stop())
    yield int(gateway.servers[0].sockets[0].getsockname()[1])
    app_stopper.set()
    await stopping
    await task


def bearer(role: str) -> dict[str, str]:
    """The header of a role's key."""
    return {"Authorization": f"Bearer {role}-key"}
