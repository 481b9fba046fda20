"""A real trust registry on each database, reached over real gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from nacl.public import PrivateKey
from nacl.signing import SigningKey

from coterie_api.trust.v1 import trust_pb2 as pb
from coterie_api.trust.v1.trust_pb2_grpc import LinksStub, RegistryStub, TrustStub
from services.kit.rpc.channels import open_channel
from services.kit.rpc.principal import SERVICE, Principal, acting_as, current_principal, set_principal
from services.kit.runtime.settings import ServiceSettings
from services.trust.app import App
from services.trust.settings import TrustSettings

if TYPE_CHECKING:
    from coterie_api.trust.v1.trust_pb2_grpc import LinksAsyncStub, RegistryAsyncStub, TrustAsyncStub

START = 1_700_000_000.0


class Hand:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time


@dataclass
class Keypair:
    """A device's private keys."""

    signing: SigningKey = field(default_factory=SigningKey.generate)
    sealing: PrivateKey = field(default_factory=PrivateKey.generate)

    @property
    def public(self) -> tuple[bytes, bytes]:
        return bytes(self.signing.verify_key), bytes(self.sealing.public_key)

    def profile(self, name: str) -> pb.Device:
        signing, sealing = self.public
        return pb.Device(name=name, kind="camera", signing_key=signing, sealing_key=sealing)

    def proof(self) -> bytes:
        return self.signing.sign(self.public[1]).signature


@dataclass
class World:
    """A running registry and how tests talk to it."""

    app: App
    settings: TrustSettings
    clock: Hand
    registry: RegistryAsyncStub
    trust: TrustAsyncStub
    links: LinksAsyncStub

    async def owner(self, name: str, sharing: str = "own") -> str:
        return (await self.registry.CreateOwner(pb.CreateOwnerRequest(name=name, sharing=sharing))).id

    async def token(self, owner_id: str, uses: int = 1000) -> str:
        return (await self.registry.IssueToken(pb.IssueTokenRequest(owner_id=owner_id, uses=uses))).token

    async def register(self, token: str, name: str, pair: Keypair | None = None) -> pb.RegisterDeviceReply:
        pair = pair or Keypair()
        request = pb.RegisterDeviceRequest(token=token, device=pair.profile(name), proof=pair.proof())
        return await self.registry.RegisterDevice(request)

    async def vouch(self, *items: pb.Interaction) -> pb.RecordInteractionsReply:
        """Records interactions as the present caller; where that is the platform, as an admin who vouches for them."""
        caller = current_principal()
        with acting_as(Principal("admin", "adm_test") if caller == SERVICE else caller):
            return await self.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=items))

    async def meet(self, a: str, b: str, *at: float, seconds: float = 60.0) -> None:
        """Meetings at these times, each reported by both ends: the honest path to trust."""
        for me in (a, b):
            items = [
                pb.Interaction(
                    id=f"{me[-6:]}{a[-6:]}{b[-6:]}{moment}",
                    device_a=a,
                    device_b=b,
                    positive=True,
                    duration_seconds=seconds,
                    at=moment,
                    kind="meeting",
                )
                for moment in at
            ]
            with acting_as(Principal("device", me)):
                await self.trust.RecordInteractions(pb.RecordInteractionsRequest(interactions=items))

    async def devices(self, count: int, owner: str = "Ada") -> list[str]:
        """Ids of `count` devices of one owner."""
        token = await self.token(await self.owner(owner))
        return [(await self.register(token, f"{owner}-{k}")).device.id for k in range(count)]


def speak_as(role: str, subject: str, owner_id: str = "") -> None:
    """From here on the test's calls come from that caller."""
    set_principal(Principal(role, subject, owner_id))


async def open_world(settings: TrustSettings, clock: Hand) -> tuple[World, grpc.aio.Channel]:
    """Starts a registry on a free port."""
    app = App(settings, "127.0.0.1:0", clock)
    await app.start()
    channel = open_channel(settings, f"127.0.0.1:{app.port}")
    return World(app, settings, clock, RegistryStub(channel), TrustStub(channel), LinksStub(channel)), channel


@pytest.fixture
async def world(settings: ServiceSettings) -> AsyncIterator[World]:
    """A registry on a fresh database, its clock in the test's hand."""
    set_principal(SERVICE)
    own = TrustSettings(data_dir=settings.data_dir, database_url=settings.database_url, drain_seconds=1, insecure=True)
    result, channel = await open_world(own, Hand())
    yield result
    set_principal(SERVICE)
    await channel.close()
    await result.app.stop()
