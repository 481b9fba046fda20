"""The door: what is remembered, for how long, and what is forgotten at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.trust.v1 import trust_pb2
from services.gateway.access.authenticator import Authenticator
from services.gateway.access.wrong_keys import WrongKeys
from services.gateway.errors import MissingKey, TooManyWrongKeys
from services.kit.errors import Unauthenticated

HOME = "192.0.2.7"


class FakeRegistry:
    """Knows keys by heart and counts how often it is asked."""

    def __init__(self) -> None:
        self.keys = {
            f"key{n}": trust_pb2.Principal(role=words.PRINCIPAL_ROLE_DEVICE, subject=f"dev_{n}", key_id=f"k{n}")
            for n in range(9)
        }
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def Authenticate(self, request: trust_pb2.AuthenticateRequest) -> trust_pb2.Principal:
        self.asked += 1
        answer = self.keys.get(request.api_key)
        await self.gate.wait()
        if answer is None:
            raise Unauthenticated("unknown")
        return answer


class Wall:
    """A clock on the wall."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def _door(registry: Any, wall: Wall, size: int = 100) -> Authenticator:
    return Authenticator(registry, WrongKeys(3, wall), seconds=5, size=size, monotonic=wall)


async def test_an_answer_is_kept_for_its_time_and_no_longer() -> None:
    registry, wall = FakeRegistry(), Wall()
    door = _door(registry, wall)
    for _ in range(3):
        assert (await door.identify("Bearer key1", HOME)).subject == "dev_1"
    assert registry.asked == 1
    wall.time += 5.001
    await door.identify("bearer key1", HOME)
    assert registry.asked == 2


async def test_a_refusal_is_not_kept() -> None:
    registry = FakeRegistry()
    door = _door(registry, Wall())
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await door.identify("Bearer stranger", HOME)
    assert registry.asked == 2


async def test_at_most_so_many_are_kept_and_the_oldest_goes_first() -> None:
    registry = FakeRegistry()
    door = _door(registry, Wall(), size=2)
    for key in ("key1", "key2", "key3", "key3", "key2"):
        await door.identify(f"Bearer {key}", HOME)
    assert registry.asked == 3
    await door.identify("Bearer key1", HOME)
    assert registry.asked == 4


@pytest.mark.parametrize("what", [{"subject": "dev_1"}, {"key_id": "k1"}])
async def test_what_is_forgotten_is_asked_again_at_once_and_others_are_not(what: dict[str, str]) -> None:
    registry = FakeRegistry()
    door = _door(registry, Wall())
    await door.identify("Bearer key1", HOME)
    await door.identify("Bearer key2", HOME)
    del registry.keys["key1"]
    door.forget(**what)
    with pytest.raises(Unauthenticated):
        await door.identify("Bearer key1", HOME)
    await door.identify("Bearer key2", HOME)
    assert registry.asked == 3


async def test_an_answer_from_before_a_revocation_does_not_outlive_it() -> None:
    registry = FakeRegistry()
    door = _door(registry, Wall())
    registry.gate.clear()
    early = asyncio.create_task(door.identify("Bearer key1", HOME))
    await asyncio.sleep(0)
    del registry.keys["key1"]
    door.forget(subject="dev_1")
    registry.gate.set()
    assert (await early).subject == "dev_1"
    with pytest.raises(Unauthenticated):
        await door.identify("Bearer key1", HOME)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer  ", "Basic abc", "key1"])
async def test_no_key_is_said_so(header: str) -> None:
    with pytest.raises(MissingKey, match="Authorization: Bearer"):
        await _door(FakeRegistry(), Wall()).identify(header, HOME)


@pytest.mark.parametrize("key", ["k" * 513, "clé", "a\x01b"])
async def test_what_cannot_be_a_key_is_refused_without_asking(key: str) -> None:
    registry = FakeRegistry()
    with pytest.raises(Unauthenticated):
        await _door(registry, Wall()).identify(f"Bearer {key}", HOME)
    assert registry.asked == 0


async def test_guessing_address_is_ignored_for_a_minute_and_others_are_not() -> None:
    registry, wall = FakeRegistry(), Wall()
    door = _door(registry, wall)
    await door.identify("Bearer key1", HOME)
    wall.time += 6  # no longer remembered, yet met
    for number in range(3):
        with pytest.raises(Unauthenticated):
            await door.identify(f"Bearer guess{number}", HOME)
    for key in ("guess", "key2"):
        with pytest.raises(TooManyWrongKeys):
            await door.identify(f"Bearer {key}", HOME)
    assert registry.asked == 4
    assert (await door.identify("Bearer key1", HOME)).subject == "dev_1"
    assert (await door.identify("Bearer key2", "192.0.2.8")).subject == "dev_2"
    wall.time += 60.001
    assert (await door.identify("Bearer key3", HOME)).subject == "dev_3"


async def test_a_caller_s_many_ipv6_addresses_count_as_one() -> None:
    registry, wall = FakeRegistry(), Wall()
    door = _door(registry, wall)
    for number in range(3):
        with pytest.raises(Unauthenticated):
            await door.identify("Bearer guess", f"2001:db8::{number}")
    with pytest.raises(TooManyWrongKeys):
        await door.identify("Bearer guess", "2001:db8::abcd")
    with pytest.raises(Unauthenticated):
        await door.identify("Bearer guess", "2001:db8:0:1::1")


async def test_a_revoked_key_is_a_wrong_one() -> None:
    registry, wall = FakeRegistry(), Wall()
    door = _door(registry, wall)
    await door.identify("Bearer key1", HOME)
    del registry.keys["key1"]
    door.forget(key_id="k1")
    for _ in range(3):
        with pytest.raises(Unauthenticated):
            await door.identify("Bearer key1", HOME)
    with pytest.raises(TooManyWrongKeys):
        await door.identify("Bearer key1", HOME)
