"""Attacks on addresses: callers that forge X-Forwarded-For, and proxies that hide their callers."""

from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.kit.http.proxies import Proxies
from tests.attacks.test_attacks_on_the_door import Ends, ask, connect, hang_up, serving
from tests.contract.gateway.conftest import bearer, platform
from tests.contract.gateway.fakes import FakePlatform

__all__ = ["platform"]
OURS = Proxies.read("127.0.0.1, 10.0.0.0/8, fd00::/8")


def forwarded(*values: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-forwarded-for", value.encode()) for value in values]


@pytest.mark.parametrize(
    ("peer", "headers", "caller"),
    [
        ("203.0.113.9", forwarded("198.51.100.1"), "203.0.113.9"),  # any caller may write the header
        ("10.0.0.7", forwarded("198.51.100.1"), "198.51.100.1"),
        ("10.0.0.7", forwarded("6.6.6.6, 198.51.100.1"), "198.51.100.1"),  # what the caller itself wrote stands first
        ("10.0.0.7", forwarded("6.6.6.6", "198.51.100.1, 10.0.0.8"), "198.51.100.1"),  # two proxies of ours
        ("10.0.0.7", forwarded("198.51.100.1:4711"), "198.51.100.1"),
        ("10.0.0.7", forwarded("[2001:db8::1]:4711"), "2001:db8::1"),
        ("::ffff:10.0.0.7", forwarded("198.51.100.1"), "198.51.100.1"),
        ("10.0.0.7", forwarded("unknown, nonsense"), "10.0.0.7"),
        ("10.0.0.7", [], "10.0.0.7"),
        ("10.0.0.7", forwarded("10.0.0.8"), "10.0.0.8"),
    ],
)
def test_only_what_our_proxies_added_is_believed(peer: str, headers: list[tuple[bytes, bytes]], caller: str) -> None:
    assert OURS.caller(peer, headers) == caller


@given(st.text(), st.lists(st.binary()))
def test_no_header_makes_an_unknown_peer_somebody_else(peer: str, values: list[bytes]) -> None:
    headers = [(b"x-forwarded-for", value) for value in values]
    assert Proxies.read("").caller(peer, headers) == peer
    assert Proxies.read("10.0.0.0/8").caller("203.0.113.9", headers) == "203.0.113.9"


def test_an_invalid_network_setting_is_reported() -> None:
    with pytest.raises(ValueError, match="COTERIE_TRUSTED_PROXIES"):
        Proxies.read("10.0.0.0/8, proxy.example")


async def test_one_guesser_behind_a_proxy_does_not_lock_out_the_others(platform: FakePlatform, tmp_path: Path) -> None:
    limits = {"max_wrong_keys": 10, "key_cache_seconds": 0, "trusted_proxies": "127.0.0.1"}
    async with (
        serving(platform, tmp_path, **limits) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):

        async def guess(number: int, address: str) -> int:
            headers = bearer(f"guess{number}") | {"X-Forwarded-For": address}
            return (await client.get("/v1/me", headers=headers)).status_code

        assert [await guess(number, "198.51.100.1") for number in range(15)] == [401] * 10 + [503] * 5
        assert await guess(99, "6.6.6.6, 198.51.100.1") == 503  # a forged first address does not change the caller
        assert await guess(100, "198.51.100.2") == 401


async def test_without_a_trusted_proxy_a_guesser_cannot_hide_behind_the_header(
    platform: FakePlatform, tmp_path: Path
) -> None:
    async with (
        serving(platform, tmp_path, max_wrong_keys=10, key_cache_seconds=0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        answers = [
            await client.get("/v1/me", headers=bearer(f"guess{n}") | {"X-Forwarded-For": f"198.51.100.{n}"})
            for n in range(15)
        ]
        assert [answer.status_code for answer in answers] == [401] * 10 + [503] * 5


async def test_a_proxy_is_not_held_to_one_caller_s_share_of_connections(platform: FakePlatform, tmp_path: Path) -> None:
    async def held(port: int) -> list[Ends]:
        return [await connect(port) for _ in range(5)]

    for proxies, status in (("", 503), ("127.0.0.0/8", 200)):
        async with serving(platform, tmp_path, max_connections_per_address=5, trusted_proxies=proxies) as port:
            lines = await held(port)
            assert await ask(port) == status
            await hang_up(*lines)
