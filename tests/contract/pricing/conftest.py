"""A real pricing engine on each database, reached over real gRPC, beside a trust registry that tests fill."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pb
from coterie_api.pricing.v1.pricing_pb2_grpc import LedgerStub, PricingStub
from coterie_api.trust.v1 import trust_pb2
from services.kit.rpc.channels import open_channel
from services.kit.rpc.parameters import to_struct
from services.kit.rpc.principal import SERVICE, Principal, set_principal
from services.kit.rpc.server import Server
from services.kit.runtime.settings import ServiceSettings
from services.pricing.app import App
from services.pricing.settings import PricingSettings

if TYPE_CHECKING:
    from coterie_api.pricing.v1.pricing_pb2_grpc import LedgerAsyncStub, PricingAsyncStub

START = 1_700_000_000.0


class Hand:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time


class FakeTrust:
    """A trust registry with preset ties."""

    def __init__(self) -> None:
        self.ties: dict[frozenset[str], float] = {}
        self.paths: dict[frozenset[str], float] = {}
        """Trust through others between two devices without a tie."""
        self.declared: dict[tuple[str, str], float] = {}
        """How close the first device's owner declares the second's; every owner has one device."""
        self.asked = 0

    def join(self, _: object, server: grpc.aio.Server) -> None:
        """Add the RPCs that pricing calls."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetMatrix": grpc.unary_unary_rpc_method_handler(
                self.get_matrix,
                request_deserializer=trust_pb2.GetMatrixRequest.FromString,
                response_serializer=trust_pb2.TrustMatrix.SerializeToString,
            ),
            "GetDeclared": grpc.unary_unary_rpc_method_handler(
                self.get_declared,
                request_deserializer=trust_pb2.GetDeclaredRequest.FromString,
                response_serializer=trust_pb2.GetDeclaredReply.SerializeToString,
            ),
        }
        generic = grpc.method_handlers_generic_handler("coterie_api.trust.v1.Trust", handlers)
        server.add_generic_rpc_handlers((generic,))

    async def get_declared(self, request: trust_pb2.GetDeclaredRequest, context: Any) -> trust_pb2.GetDeclaredReply:
        places = {device: place for place, device in enumerate(request.device_ids)}
        declarations = [(places[a], places[b], v) for (a, b), v in self.declared.items() if a in places and b in places]
        reply = trust_pb2.GetDeclaredReply(owners=range(len(places)))
        for row, column, strength in declarations:
            reply.rows.append(row)
            reply.columns.append(column)
            reply.strengths.append(strength)
        return reply

    async def get_matrix(self, request: trust_pb2.GetMatrixRequest, context: Any) -> trust_pb2.TrustMatrix:
        self.asked += 1
        reply = trust_pb2.TrustMatrix(device_ids=request.device_ids)
        for i, a in enumerate(request.device_ids):
            for j, b in enumerate(request.device_ids[i + 1 :], start=i + 1):
                direct = self.ties.get(frozenset((a, b)), 0.0)
                trust = direct or self.paths.get(frozenset((a, b)), 0.0)
                if trust:
                    reply.rows.append(i)
                    reply.columns.append(j)
                    reply.trust.append(trust)
                    reply.direct.append(direct)
        return reply


@dataclass
class World:
    """A running pricing engine and its stubs."""

    app: App
    settings: PricingSettings
    clock: Hand
    registry: FakeTrust
    pricing: PricingAsyncStub
    ledger: LedgerAsyncStub
    rounds: dict[str, int] = field(default_factory=dict)

    async def fund(self, task: str, amount: int, publisher: str = "pub_1") -> None:
        """Open the escrow of a task."""
        if amount:
            await self.ledger.Deposit(pb.DepositRequest(publisher=publisher, amount_microcredits=amount, key=task))
        request = pb.OpenEscrowRequest(task_id=task, publisher=publisher, amount_microcredits=amount)
        await self.ledger.OpenEscrow(request)

    async def quote(
        self,
        task: str,
        number: int,
        incentive: str,
        devices: list[str],
        parameters: dict[str, Any] | None = None,
        rounds: int = 1,
    ) -> pb.Quote:
        """Price a round."""
        request = pb.QuoteRoundRequest(
            task_id=task,
            round=number,
            incentive=incentive,
            parameters=to_struct(parameters or {}),
            participants=[pb.Participant(device_id=device, samples=10) for device in devices],
            rounds=rounds,
        )
        return await self.pricing.QuoteRound(request)

    async def settle(
        self, task: str, number: int, work: list[pb.Work], payoffs: dict[str, int] | None = None
    ) -> pb.Settlement:
        """Settle a round; each device with a payoff is a cluster of one."""
        paid = None if payoffs is None else alone(payoffs)
        return await self.ledger.SettleRound(pb.SettleRoundRequest(task_id=task, round=number, work=work, payoffs=paid))

    async def pay(self, task: str, number: int, owed: dict[str, int], owner: str = "own_1") -> pb.Settlement:
        """Quote and settle a round of payoffs."""
        await self.quote(task, number, "payoff", list(owed))
        work = [
            pb.Work(device_id=device, owner_id=owner, outcome=words.PARTICIPATION_STATE_DELIVERED) for device in owed
        ]
        return await self.settle(task, number, work, owed)

    async def balance(self, account: str) -> int:
        """Return an account's balance."""
        return (await self.ledger.GetAccount(pb.GetAccountRequest(account_id=account))).balance_microcredits


def alone(payoffs: dict[str, int]) -> pb.Payoffs:
    """Clusters of one; a point is worth one micro-credit."""
    clusters = [
        pb.Cluster(head_device_id=device, members=[pb.ClusterMember(device_id=device, quality=1.0, solo_payoff=amount)])
        for device, amount in payoffs.items()
    ]
    return pb.Payoffs(clusters=clusters, credits_per_point=1e-6)


def speak_as(role: str, subject: str, owner_id: str = "") -> None:
    """Make the test's next calls as that caller."""
    set_principal(Principal(role, subject, owner_id))


@pytest.fixture
async def world(settings: ServiceSettings) -> AsyncIterator[World]:
    """A pricing engine on a fresh database, with a clock that the test sets."""
    set_principal(SERVICE)
    registry = FakeTrust()
    trust = Server(settings, "127.0.0.1:0")
    trust.add(registry.join, registry, "coterie_api.trust.v1.Trust")
    await trust.start()
    own = PricingSettings(
        data_dir=settings.data_dir,
        database_url=settings.database_url,
        trust_address=f"127.0.0.1:{trust.port}",
        drain_seconds=1,
        insecure=True,
    )
    clock = Hand()
    app = App(own, "127.0.0.1:0", clock)
    await app.start()
    channel = open_channel(own, f"127.0.0.1:{app.port}")
    yield World(app, own, clock, registry, PricingStub(channel), LedgerStub(channel))
    set_principal(SERVICE)
    await channel.close()
    await app.stop()
    await trust.stop()
