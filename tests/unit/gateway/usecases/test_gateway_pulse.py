"""Heartbeats share calls, and long polls end with their callers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from coterie_api.trust.v1 import trust_pb2
from services.gateway.errors import Stopping
from services.gateway.usecases import heartbeats as pulse_module
from services.gateway.usecases.heartbeats import HeartbeatBatcher
from services.gateway.usecases.long_polls import LongPoller
from services.kit.errors import Unavailable
from services.kit.rpc.principal import Principal, current_principal, set_principal


class FakeRegistry:
    """Takes heartbeats when its gate is open."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.callers: list[str] = []
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def Heartbeat(self, request: trust_pb2.HeartbeatRequest) -> trust_pb2.HeartbeatReply:
        self.batches.append(list(request.device_ids))
        self.callers.append(current_principal().role)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return trust_pb2.HeartbeatReply()


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_heartbeats_that_come_during_call_share_next_one_for_platform() -> None:
    registry: Any = FakeRegistry()
    pulse = HeartbeatBatcher(registry)
    set_principal(Principal("device", "dev_1"))
    first = asyncio.create_task(pulse.beat("dev_1"))
    await _settle()
    others = [asyncio.create_task(pulse.beat(f"dev_{n}")) for n in (2, 3, 2)]
    await _settle()
    assert registry.batches == [["dev_1"]]
    assert not first.done()
    registry.gate.set()
    await asyncio.gather(first, *others)
    assert registry.batches == [["dev_1"], ["dev_2", "dev_3"]]
    assert set(registry.callers) == {"service"}


async def test_failed_call_fails_only_its_own_heartbeats() -> None:
    registry: Any = FakeRegistry()
    registry.gate.set()
    registry.error = Unavailable("away")
    pulse = HeartbeatBatcher(registry)
    outcomes = await asyncio.gather(pulse.beat("dev_1"), pulse.beat("dev_2"), return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    registry.error = None
    await pulse.beat("dev_1")
    assert registry.batches[-1] == ["dev_1"]


async def test_a_huge_batch_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse_module, "MAX_IDS", 2)
    registry: Any = FakeRegistry()
    registry.gate.set()
    pulse = HeartbeatBatcher(registry)
    await asyncio.gather(*(pulse.beat(f"dev_{n}") for n in range(5)))
    assert [len(batch) for batch in registry.batches] == [2, 2, 1]


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    registry: Any = FakeRegistry()
    pulse = HeartbeatBatcher(registry)
    gone, stays = asyncio.create_task(pulse.beat("dev_1")), asyncio.create_task(pulse.beat("dev_2"))
    await _settle()
    gone.cancel()
    await _settle()
    registry.gate.set()
    await stays


class Wire:
    """The receiving end of a connection."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    def request(self) -> Request:
        return Request({"type": "http", "method": "GET", "headers": []}, self.messages.get)


@pytest.fixture
def cancelled() -> list[str]:
    """What was cancelled."""
    return []


async def _endless(cancelled: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.append("call")
        raise


async def test_patience_returns_what_the_call_returns_or_raises() -> None:
    async def quick() -> int:
        return 7

    async def broken() -> int:
        raise Unavailable("away")

    assert await LongPoller().wait(Wire().request(), quick()) == 7
    with pytest.raises(Unavailable, match="away"):
        await LongPoller().wait(Wire().request(), broken())


async def test_patience_ends_the_call_when_the_gateway_stops(cancelled: list[str]) -> None:
    patience = LongPoller()
    waiting = asyncio.create_task(patience.wait(Wire().request(), _endless(cancelled)))
    await _settle()
    patience.stop()
    with pytest.raises(Stopping):
        await waiting
    await _settle()
    assert cancelled == ["call"]


async def test_patience_ends_the_call_when_the_caller_has_gone(cancelled: list[str]) -> None:
    wire = Wire()
    waiting = asyncio.create_task(LongPoller().wait(wire.request(), _endless(cancelled)))
    await _settle()
    assert not waiting.done()
    wire.messages.put_nowait({"type": "http.disconnect"})
    with pytest.raises(Stopping):
        await waiting
    await _settle()
    assert cancelled == ["call"]
