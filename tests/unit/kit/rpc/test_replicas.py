"""Every replica behind a name is asked by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coterie.version import VERSION
from coterie_cli.certificates import make_certificates
from services.kit.rpc.channels import open_channel
from services.kit.rpc.replicas import addresses_of, replicas_at
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings

HOSTS = {"gateway": ["localhost"], "topology": ["localhost"]}
PLACES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
"""Addresses of this machine: two with a server, one without."""


async def three(host: str, port: int) -> list[str]:
    return PLACES


@asynccontextmanager
async def two_replicas(folder: Path) -> AsyncIterator[str]:
    """The address of a name behind which two servers answer on one port."""
    settings = ServiceSettings(tls_dir=folder, replica="first")
    first = Server(settings, f"{PLACES[0]}:0")
    second = Server(settings.model_copy(update={"replica": "zweiter ö"}), f"{PLACES[1]}:{first.port}")
    await first.start()
    await second.start()
    yield f"localhost:{first.port}"
    await first.stop()
    await second.stop()


async def test_each_replica_tells_its_name_and_one_that_is_gone_is_away(tmp_path: Path) -> None:
    folders = make_certificates(tmp_path / "certs", HOSTS, 30)
    settings = ServiceSettings(tls_dir=folders["gateway"])
    async with two_replicas(folders["topology"]) as address:
        channel = open_channel(settings, address)
        result = await replicas_at(settings, address, channel, three)
        (one,) = await replicas_at(settings, address, channel, lambda host, port: addresses_of("127.0.0.1", port))
        await channel.close()
    assert [(item["state"], item["name"], item["version"]) for item in result] == [
        ("serving", "first", VERSION),
        ("serving", "zweiter ?", VERSION),
        ("away", "", ""),
    ]
    assert all(item["certificate_ends_at"] > 0 for item in result[:2])
    assert one["state"] == "serving"


async def test_an_unknown_name_has_no_addresses() -> None:
    assert await addresses_of("unknown.invalid", 1) == []
