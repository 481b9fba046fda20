"""Statements, payments, totals, soundness and privacy over gRPC, on SQLite and PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from coterie.privacy import accounting
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.pricing.v1 import pricing_pb2 as pb
from services.kit.database.engine import Database
from services.kit.errors import InvalidInput, NotFound, PermissionDenied
from services.kit.rpc.principal import SERVICE, set_principal
from tests.contract.pricing.conftest import START, World, speak_as

DAY = 86_400.0


async def history(world: World) -> None:
    """Day 0: deposit 1,000, escrow 600. Days 1 to 3: one round each. Day 4: release the rest."""
    await world.ledger.Deposit(pb.DepositRequest(publisher="pub_1", amount_microcredits=1000, key="a"))
    request = pb.OpenEscrowRequest(task_id="tsk_1", publisher="pub_1", amount_microcredits=600)
    await world.ledger.OpenEscrow(request)
    for number, owed in enumerate(({"dev_1": 10, "dev_2": 20}, {"dev_1": 11}, {"dev_1": 12, "dev_2": 22}), start=1):
        world.clock.time = START + number * DAY
        await world.pay("tsk_1", number, owed)
    world.clock.time = START + 4 * DAY
    await world.ledger.ReleaseEscrow(pb.ReleaseEscrowRequest(task_id="tsk_1"))


async def test_a_statement_adds_up_over_any_period_and_page(world: World) -> None:
    await history(world)
    request = pb.GetStatementRequest(account_id="escrow:tsk_1", since=START + DAY, until=START + 3 * DAY)
    statement = await world.ledger.GetStatement(request)
    assert (statement.opening_microcredits, statement.closing_microcredits) == (600, 559)
    assert [(p.amount_microcredits, p.kind) for p in statement.postings] == [
        (-30, words.POSTING_KIND_PAYMENT),
        (-11, words.POSTING_KIND_PAYMENT),
    ]
    whole = pb.GetStatementRequest(account_id="escrow:tsk_1", limit=2)
    amounts = []
    while True:
        page = await world.ledger.GetStatement(whole)
        amounts += [posting.amount_microcredits for posting in page.postings]
        assert (page.opening_microcredits, page.closing_microcredits) == (0, 0)
        if not page.next_cursor:
            break
        whole.cursor = page.next_cursor
    assert amounts == [600, -30, -11, -34, -525]


async def test_an_owners_statement_is_that_of_its_devices(world: World) -> None:
    await history(world)
    statement = await world.ledger.GetStatement(pb.GetStatementRequest(account_id="owner:own_1"))
    assert statement.account.balance_microcredits == statement.closing_microcredits == 75
    assert [(p.account_id, p.amount_microcredits) for p in statement.postings][:3] == [
        ("device:dev_1", 10),
        ("device:dev_2", 20),
        ("device:dev_1", 11),
    ]


async def test_accounts_come_in_order_of_id_and_by_prefix(world: World) -> None:
    await history(world)
    everything = await world.ledger.ListAccounts(pb.ListAccountsRequest())
    assert [(a.id, a.balance_microcredits) for a in everything.accounts] == [
        ("device:dev_1", 33),
        ("device:dev_2", 42),
        ("escrow:tsk_1", 0),
        ("owner:own_1", 75),
        ("platform:mint", -1000),
        ("publisher:pub_1", 925),
    ]
    first = await world.ledger.ListAccounts(pb.ListAccountsRequest(prefix="device:", limit=1))
    rest = await world.ledger.ListAccounts(pb.ListAccountsRequest(prefix="device:", cursor=first.next_cursor))
    assert [a.id for a in [*first.accounts, *rest.accounts]] == ["device:dev_1", "device:dev_2"]
    assert rest.next_cursor == ""


async def numbers_of(world: World, request: pb.ListPaymentsRequest) -> list[int]:
    """Numbers of all matching payments, over pages of two."""
    request.limit, result = 2, []
    while True:
        page = await world.ledger.ListPayments(request)
        result += [payment.number for payment in page.payments]
        if not page.next_cursor:
            return result
        request.cursor = page.next_cursor


async def test_payments_are_listed_newest_first(world: World) -> None:
    await history(world)
    asked = pb.ListPaymentsRequest
    assert await numbers_of(world, asked()) == [5, 4, 3, 2, 1]
    assert await numbers_of(world, asked(device_id="dev_2")) == [5, 2]
    assert await numbers_of(world, asked(owner_id="own_1", since=START + 2 * DAY)) == [5, 4, 3]
    assert await numbers_of(world, asked(until=START + 2 * DAY)) == [2, 1]
    assert await numbers_of(world, asked(task_id="tsk_2")) == []


async def test_totals_name_earners_costs_and_anomalies(world: World) -> None:
    await world.fund("tsk_1", 10_000)
    await world.pay("tsk_1", 1, {"dev_1": 100, "dev_2": 101, "dev_3": 99, "dev_4": 102, "dev_5": 900})
    await world.fund("tsk_2", 50, "pub_2")
    await world.pay("tsk_2", 1, {"dev_1": 80})
    summary = await world.ledger.Summarise(pb.SummariseRequest())
    assert summary.outstanding_microcredits == 10_000 - 1302
    assert summary.paid_microcredits == 1352
    assert [(e.device_id, e.paid_microcredits, e.payments) for e in summary.earners][:2] == [
        ("dev_5", 900, 1),
        ("dev_1", 150, 2),
    ]
    assert [(t.task_id, t.escrow_microcredits, t.paid_microcredits, t.rounds) for t in summary.tasks] == [
        ("tsk_1", 8698, 1302, 1),
        ("tsk_2", 0, 50, 1),
    ]
    assert any("0.0009 credits to dev_5" in line for line in summary.anomalies)
    assert any("round 1 of tsk_2: the escrow covered 0.00005 of 0.00008 credits" in line for line in summary.anomalies)
    one = await world.ledger.Summarise(pb.SummariseRequest(task_id="tsk_2"))
    assert (one.outstanding_microcredits, one.paid_microcredits, len(one.earners)) == (0, 50, 1)


async def tamper(world: World, statement: str) -> None:
    """Change the database without its guards."""
    database = Database(world.settings.database_for("pricing"), "pricing")
    try:
        async with database.writing() as connection:
            await connection.execute(sa.text(statement))
    finally:
        await database.close()


def without_guards(world: World) -> list[str]:
    """Statements that drop the append-only guards."""
    if world.settings.database_url:
        tables = ("entries", "postings", "payments")
        return [f"DROP TRIGGER {table}_append_only ON {table}" for table in tables]
    return [f"DROP TRIGGER {table}_no_update" for table in ("entries", "postings", "payments")]


FORBIDDEN = (
    "UPDATE postings SET amount = amount + 1",
    "DELETE FROM postings",
    "UPDATE entries SET note = 'edited'",
    "UPDATE payments SET because = 'edited'",
    "DELETE FROM payments",
    "INSERT INTO postings (entry, position, account_id, amount) VALUES (1, 9, 'device:dev_1', 5)",
    "INSERT INTO postings (entry, position, account_id, amount) VALUES (99, 0, 'device:dev_1', 5)",
    "INSERT INTO entries VALUES (99, 0, 'x', 'x', '', '', 1, 'x')",
    "UPDATE accounts SET balance = -1 WHERE id = 'device:dev_1'",
)


async def test_database_refuses_to_change_the_ledger(world: World) -> None:
    await world.fund("tsk_1", 100)
    await world.pay("tsk_1", 1, {"dev_1": 10})
    for statement in FORBIDDEN:
        with pytest.raises(IntegrityError):
            await tamper(world, statement)
            pytest.fail(f"{statement} went through")
    assert (await world.ledger.Verify(pb.VerifyRequest())).sound


async def test_verify_detects_changes_behind_the_guards(world: World) -> None:
    await world.fund("tsk_1", 100)
    await world.pay("tsk_1", 1, {"dev_1": 10, "dev_2": 20})
    for statement in without_guards(world):
        await tamper(world, statement)
    await tamper(world, "UPDATE payments SET amount = 11 WHERE device_id = 'dev_1'")
    first = await world.ledger.Verify(pb.VerifyRequest())
    assert list(first.faults) == ["the payments of entry 3 are not those it was sealed with"]
    await tamper(world, "UPDATE postings SET amount = 25 WHERE account_id = 'device:dev_2'")
    await tamper(world, "UPDATE accounts SET balance = 25 WHERE id = 'device:dev_2'")
    faults = list((await world.ledger.Verify(pb.VerifyRequest())).faults)
    assert "entry 3 or one before it was changed: its hash does not match" in faults
    assert "the postings of entry 3 sum to 5, not to 0" in faults


async def test_privacy_composes_over_rounds_and_tasks(world: World) -> None:
    """Two rounds of multiplier 4 and a Laplace answer in another task, against the device's own accounting."""
    for task in ("tsk_1", "tsk_2"):
        await world.fund(task, 0)
    gaussian = pb.PrivacyCharge(
        mechanism=words.PRIVACY_MECHANISM_GAUSSIAN, parameter=4.0, unit=words.PRIVACY_UNIT_DEVICE
    )
    laplace = pb.PrivacyCharge(
        mechanism=words.PRIVACY_MECHANISM_LAPLACE, parameter=0.3, unit=words.PRIVACY_UNIT_EXAMPLE
    )
    for task, number, charge in (("tsk_1", 1, gaussian), ("tsk_1", 2, gaussian), ("tsk_2", 1, laplace)):
        await world.quote(task, number, "none", ["dev_1"])
        for _ in range(2):  # a repeat charges nothing
            await world.settle(
                task,
                number,
                [pb.Work(device_id="dev_1", outcome=words.PARTICIPATION_STATE_DELIVERED, privacy=[charge])],
            )
    own = [accounting.gaussian_charge("a", k, "update", "device", 4.0) for k in range(2)]
    own.append(accounting.laplace_charge("b", 1, "update", "example", 0.3))
    report = await world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="dev_1"))
    assert report.delta == 1e-6
    assert report.epsilon == pytest.approx(accounting.total(own, 1e-6))
    assert [(t.task_id, t.rounds) for t in report.tasks] == [("tsk_1", 2), ("tsk_2", 1)]
    assert [t.unit for t in report.tasks] == [words.PRIVACY_UNIT_DEVICE, words.PRIVACY_UNIT_EXAMPLE]
    first = report.tasks[0]
    assert first.adjacency == words.PRIVACY_ADJACENCY_LEFT_OUT
    assert report.adjacency == words.PRIVACY_ADJACENCY_REPLACED
    assert report.unit == words.PRIVACY_UNIT_EXAMPLE
    assert first.epsilon == pytest.approx(accounting.total(own[:2], 1e-6, "device"))
    assert first.epsilon_replaced == pytest.approx(accounting.total(own[:2], 1e-6, "device", "replaced"))
    assert "left out" in first.in_words
    assert "replaced by any other (4 × ρ)" in first.in_words
    nothing = await world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="dev_2", delta=1e-3))
    assert (nothing.epsilon, len(nothing.tasks)) == (0.0, 0)


async def test_impossible_charge_does_not_block_the_round(world: World) -> None:
    await world.fund("tsk_1", 0)
    await world.quote("tsk_1", 1, "none", ["dev_1"])
    charges = [pb.PrivacyCharge(parameter=math.nan), pb.PrivacyCharge.FromString(b"\x38\x63\x40\x63")]  # words 99
    await world.settle(
        "tsk_1", 1, [pb.Work(device_id="dev_1", outcome=words.PARTICIPATION_STATE_DELIVERED, privacy=charges)]
    )
    report = await world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="dev_1"))
    assert report.epsilon == math.inf


async def test_callers_see_only_their_own_accounts_and_payments(world: World) -> None:
    await history(world)

    def account(account_id: str) -> Awaitable[object]:
        return world.ledger.GetAccount(pb.GetAccountRequest(account_id=account_id))

    def paid(task_id: str = "", device_id: str = "") -> Awaitable[object]:
        return world.ledger.ListPayments(pb.ListPaymentsRequest(task_id=task_id, device_id=device_id))

    refused: dict[tuple[str, str, str], list[Callable[[], Awaitable[object]]]] = {
        ("device", "dev_1", "own_1"): [
            lambda: account("device:dev_2"),
            lambda: account("owner:own_2"),
            lambda: account("publisher:pub_1"),
            lambda: account("escrow:tsk_1"),
            lambda: account("platform:mint"),
            lambda: paid(),
            lambda: paid(device_id="dev_2"),
            lambda: paid(task_id="tsk_1"),
            lambda: world.ledger.ListAccounts(pb.ListAccountsRequest()),
            lambda: world.ledger.Verify(pb.VerifyRequest()),
            lambda: world.ledger.Summarise(pb.SummariseRequest()),
            lambda: world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="dev_2")),
            lambda: world.ledger.Deposit(pb.DepositRequest(publisher="pub_1", amount_microcredits=1, key="k")),
            lambda: world.settle("tsk_1", 9, []),
            lambda: world.ledger.ReleaseEscrow(pb.ReleaseEscrowRequest(task_id="tsk_1")),
            lambda: world.ledger.OpenEscrow(pb.OpenEscrowRequest(task_id="tsk_2", publisher="pub_1")),
            lambda: world.quote("tsk_1", 9, "none", []),
        ],
        ("publisher", "pub_2", ""): [
            lambda: account("publisher:pub_1"),
            lambda: account("escrow:tsk_1"),
            lambda: account("device:dev_1"),
            lambda: paid(task_id="tsk_1"),
            lambda: paid(device_id="dev_1"),
            lambda: world.ledger.Summarise(pb.SummariseRequest(task_id="tsk_1")),
            lambda: world.ledger.Summarise(pb.SummariseRequest()),
            lambda: world.ledger.OpenEscrow(pb.OpenEscrowRequest(task_id="tsk_2", publisher="pub_1")),
            lambda: world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="dev_1")),
        ],
    }
    for caller, calls in refused.items():
        for number, call in enumerate(calls):
            speak_as(*caller)
            with pytest.raises(PermissionDenied):
                await call()
                pytest.fail(f"call {number} of {caller} was allowed")
    speak_as("device", "dev_1", "own_1")
    assert await world.balance("device:dev_1") == 33
    assert await world.balance("owner:own_1") == 75
    assert len((await world.ledger.ListPayments(pb.ListPaymentsRequest(device_id="dev_1"))).payments) == 3
    speak_as("device", "dev_new", "own_9")
    assert await world.balance("device:dev_new") == 0
    speak_as("publisher", "pub_1")
    assert await world.balance("escrow:tsk_1") == 0
    assert len((await world.ledger.ListPayments(pb.ListPaymentsRequest(task_id="tsk_1"))).payments) == 5
    set_principal(SERVICE)
    with pytest.raises(NotFound):
        await world.balance("device:dev_new")


async def test_invalid_requests_are_refused_with_a_reason(world: World) -> None:
    deposit, statement = pb.DepositRequest, pb.GetStatementRequest
    calls: list[Awaitable[object]] = [
        world.ledger.Deposit(deposit(publisher="pub 1", amount_microcredits=1, key="k")),
        world.ledger.Deposit(deposit(publisher="pub_1", amount_microcredits=0, key="k")),
        world.ledger.Deposit(deposit(publisher="pub_1", amount_microcredits=2**62 + 1, key="k")),
        world.ledger.Deposit(deposit(publisher="pub_1", amount_microcredits=1, key="")),
        world.ledger.OpenEscrow(pb.OpenEscrowRequest(task_id="a:b", publisher="pub_1")),
        world.ledger.OpenEscrow(pb.OpenEscrowRequest(task_id="tsk", publisher="pub_1", amount_microcredits=-1)),
        world.settle("tsk_1", 0, []),
        world.quote("tsk_1", 0, "none", []),
        world.quote("tsk_1", 1, "none", ["dev_1", "dev_1"]),
        world.ledger.ListPayments(pb.ListPaymentsRequest(limit=1001)),
        world.ledger.ListPayments(pb.ListPaymentsRequest(cursor="x")),
        world.ledger.ListPayments(pb.ListPaymentsRequest(since=5, until=4)),
        world.ledger.ListPayments(pb.ListPaymentsRequest(since=math.nan)),
        world.ledger.ListPayments(pb.ListPaymentsRequest(task_id="\x00")),
        world.ledger.GetStatement(statement(account_id="platform:mint", cursor="1")),
        world.ledger.ListAccounts(pb.ListAccountsRequest(limit=-1)),
        world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="dev_1", delta=1.0)),
        world.ledger.GetPrivacy(pb.GetPrivacyRequest(device_id="")),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(InvalidInput):
            await call
            pytest.fail(f"call {number} was taken")
