"""The ledger over gRPC, on SQLite and PostgreSQL: money moves once, sums to zero, and is traceable."""

from __future__ import annotations

import asyncio

import pytest

from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pb
from coterie_api.topology.v1 import topology_pb2
from services.kit.errors import AlreadyExists, Conflict, Exhausted, InvalidInput, NotFound
from tests.contract.pricing.conftest import World


async def test_a_deposit_counts_once_per_key(world: World) -> None:
    request = pb.DepositRequest(publisher="pub_1", amount_microcredits=500, key="invoice-1")
    await world.ledger.Deposit(request)
    again = await world.ledger.Deposit(request)
    assert again.balance_microcredits == 500
    assert await world.balance("platform:mint") == -500
    with pytest.raises(AlreadyExists, match="fresh key"):
        await world.ledger.Deposit(pb.DepositRequest(publisher="pub_1", amount_microcredits=501, key="invoice-1"))
    other = await world.ledger.Deposit(pb.DepositRequest(publisher="pub_2", amount_microcredits=7, key="invoice-1"))
    assert other.balance_microcredits == 7


async def test_an_escrow_opens_once_and_says_what_is_missing(world: World) -> None:
    await world.ledger.Deposit(pb.DepositRequest(publisher="pub_1", amount_microcredits=100, key="a"))
    request = pb.OpenEscrowRequest(task_id="tsk_1", publisher="pub_1", amount_microcredits=130)
    with pytest.raises(Exhausted, match=r"0\.00003 are missing") as refused:
        await world.ledger.OpenEscrow(request)
    assert refused.value.reason == "insufficient_funds"
    assert refused.value.details == {"missing_microcredits": "30"}
    request.amount_microcredits = 60
    for _ in range(2):
        assert (await world.ledger.OpenEscrow(request)).balance_microcredits == 60
    assert await world.balance("publisher:pub_1") == 40
    request.amount_microcredits = 50
    with pytest.raises(AlreadyExists, match=r"escrow of 0\.00006 credits"):
        await world.ledger.OpenEscrow(request)


async def test_an_empty_escrow_needs_no_money(world: World) -> None:
    opened = await world.ledger.OpenEscrow(pb.OpenEscrowRequest(task_id="tsk_1", publisher="pub_9"))
    assert (opened.id, opened.balance_microcredits) == ("escrow:tsk_1", 0)
    released = await world.ledger.ReleaseEscrow(pb.ReleaseEscrowRequest(task_id="tsk_1"))
    assert (released.id, released.balance_microcredits) == ("publisher:pub_9", 0)


async def test_a_free_round_settles_and_opens_an_account_per_device(world: World) -> None:
    await world.fund("tsk_1", 0)
    quote = await world.quote("tsk_1", 1, "none", ["dev_1", "dev_2"])
    assert quote.status == words.QUOTE_STATUS_OK
    assert [(offer.device_id, offer.price_microcredits) for offer in quote.offers] == [("dev_1", 0), ("dev_2", 0)]
    settled = await world.settle(
        "tsk_1", 1, [pb.Work(device_id="dev_1", owner_id="own_1", outcome=words.PARTICIPATION_STATE_DELIVERED)]
    )
    assert (settled.paid_microcredits, settled.exhausted, settled.fresh) == (0, False, True)
    assert await world.balance("device:dev_1") == 0
    assert await world.balance("owner:own_1") == 0
    with pytest.raises(NotFound):
        await world.balance("device:dev_2")


async def test_a_round_is_paid_once_and_only_for_what_was_delivered(world: World) -> None:
    await world.fund("tsk_1", 1000)
    await world.quote("tsk_1", 1, "payoff", ["dev_1", "dev_2", "dev_3"])
    work = [
        pb.Work(device_id="dev_2", owner_id="own_1", outcome=words.PARTICIPATION_STATE_DELIVERED),
        pb.Work(device_id="dev_1", owner_id="own_1", outcome=words.PARTICIPATION_STATE_DELIVERED, quality=0.5),
        pb.Work(device_id="dev_3", owner_id="own_2", outcome=words.PARTICIPATION_STATE_DROPPED),
    ]
    payoffs = {"dev_1": 100, "dev_2": 200}
    settled = await world.settle("tsk_1", 1, work, payoffs)
    assert settled.fresh
    assert (settled.paid_microcredits, settled.escrow_microcredits) == (300, 700)
    assert [(p.number, p.device_id, p.amount_microcredits) for p in settled.payments] == [
        (1, "dev_1", 100),
        (2, "dev_2", 200),
    ]
    work[2].outcome = words.PARTICIPATION_STATE_LATE  # a repeat may differ in work that was not delivered
    again = await world.settle("tsk_1", 1, work[::-1], payoffs)
    assert not again.fresh
    assert list(again.payments) == list(settled.payments)
    assert await world.balance("device:dev_1") == 100
    assert await world.balance("owner:own_1") == 300
    for other in (payoffs | {"dev_2": 201}, None):
        with pytest.raises(AlreadyExists, match="settled for different work"):
            await world.settle("tsk_1", 1, work, other)
    assert await world.balance("escrow:tsk_1") == 700


async def test_a_cluster_shares_the_pot_that_was_quoted_for_its_round(world: World) -> None:
    """V = 0.5·40 − 2 = 18, of which 13 are the head's (worked out in test_payoffs); a pot of 500 goes 13:5."""
    await world.fund("tsk_1", 1000)
    quote = await world.quote("tsk_1", 1, "payoff", ["dev_1", "dev_2"], rounds=2)
    assert quote.pot_microcredits == 500
    cluster = pb.Cluster(
        head_device_id="dev_1",
        members=[
            pb.ClusterMember(device_id="dev_1", quality=30.0, solo_payoff=8.0),
            pb.ClusterMember(device_id="dev_2", quality=10.0, solo_payoff=4.0),
        ],
        game_parameters=topology_pb2.GameParameters(price=0.5, member_cost=1.0, head_reward=2.0),
    )
    work = [
        pb.Work(device_id=device, owner_id="own_1", outcome=words.PARTICIPATION_STATE_DELIVERED)
        for device in ("dev_1", "dev_2")
    ]
    request = pb.SettleRoundRequest(task_id="tsk_1", round=1, work=work, payoffs=pb.Payoffs(clusters=[cluster]))
    settled = await world.ledger.SettleRound(request)
    assert [p.amount_microcredits for p in settled.payments] == [361, 139]
    twice = pb.Payoffs(clusters=[cluster, cluster])
    with pytest.raises(InvalidInput, match="two clusters"):
        await world.ledger.SettleRound(pb.SettleRoundRequest(task_id="tsk_1", round=1, work=work, payoffs=twice))


async def test_short_escrow_pays_all_devices_the_same_fraction(world: World) -> None:
    """100 left for 150 + 30 + 20 owed: exactly half each."""
    await world.fund("tsk_1", 100)
    settled = await world.pay("tsk_1", 1, {"dev_1": 150, "dev_2": 30, "dev_3": 20})
    assert settled.exhausted
    assert [p.amount_microcredits for p in settled.payments] == [75, 15, 10]
    assert "0.00015 credits were owed" in settled.payments[0].because
    after = await world.pay("tsk_1", 2, {"dev_1": 5})
    assert after.exhausted
    assert not after.payments


async def test_rest_is_released_once_and_then_nothing_is_paid(world: World) -> None:
    await world.fund("tsk_1", 100)
    await world.pay("tsk_1", 1, {"dev_1": 30})
    for _ in range(2):
        released = await world.ledger.ReleaseEscrow(pb.ReleaseEscrowRequest(task_id="tsk_1"))
        assert released.balance_microcredits == 70
    with pytest.raises(Conflict, match="was released"):
        await world.pay("tsk_1", 2, {"dev_1": 30})
    assert not (await world.pay("tsk_1", 1, {"dev_1": 30})).fresh


async def test_a_round_without_quote_or_escrow_is_refused(world: World) -> None:
    with pytest.raises(NotFound, match="no escrow"):
        await world.settle("tsk_1", 1, [])
    await world.fund("tsk_1", 0)
    with pytest.raises(NotFound, match="has no quote"):
        await world.settle("tsk_1", 1, [])
    await world.quote("tsk_1", 1, "none", [])
    twice = [pb.Work(device_id="dev_1", outcome=words.PARTICIPATION_STATE_DELIVERED)] * 2
    with pytest.raises(InvalidInput, match="occurs twice"):
        await world.settle("tsk_1", 1, twice)


async def test_concurrent_settlements_leave_a_sound_ledger(world: World) -> None:
    """Ten tasks, each settled twice at the same time: one of each pair is fresh, and the chain has no fork."""
    for k in range(10):
        await world.fund(f"tsk_{k}", 50)
    done = await asyncio.gather(*(world.pay(f"tsk_{k % 10}", 1, {"dev_1": 5, f"dev_x{k % 10}": 7}) for k in range(20)))
    assert sum(settled.fresh for settled in done) == 10
    assert await world.balance("device:dev_1") == 50
    verdict = await world.ledger.Verify(pb.VerifyRequest())
    assert (verdict.sound, list(verdict.faults), verdict.entries, verdict.postings) == (True, [], 30, 70)
