"""The Ledger service on the wire."""

from __future__ import annotations

import time
from typing import Any

from coterie_api.pricing.v1 import pricing_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2_grpc as rpc
from services.pricing.domain.records import PaymentFilter
from services.pricing.servicer import messages
from services.pricing.usecases.accounts import Accounts
from services.pricing.usecases.reports import Reports
from services.pricing.usecases.settling import Settling


class LedgerServicer(rpc.LedgerServicer):
    """Accounts, payments and privacy charges."""

    def __init__(self, accounts: Accounts, settling: Settling, reports: Reports) -> None:
        self._accounts = accounts
        self._settling = settling
        self._reports = reports

    async def Deposit(self, request: pb.DepositRequest, context: Any) -> pb.Account:
        result = await self._accounts.deposit(request.publisher, request.amount_microcredits, request.key)
        return messages.to_account(result)

    async def OpenEscrow(self, request: pb.OpenEscrowRequest, context: Any) -> pb.Account:
        result = await self._accounts.open_escrow(request.task_id, request.publisher, request.amount_microcredits)
        return messages.to_account(result)

    async def SettleRound(self, request: pb.SettleRoundRequest, context: Any) -> pb.Settlement:
        work = [messages.from_work(item) for item in request.work]
        payoffs = messages.from_payoffs(request.payoffs) if request.HasField("payoffs") else None
        return messages.to_settlement(await self._settling.settle(request.task_id, request.round, work, payoffs))

    async def ReleaseEscrow(self, request: pb.ReleaseEscrowRequest, context: Any) -> pb.Account:
        return messages.to_account(await self._accounts.release_escrow(request.task_id))

    async def GetAccount(self, request: pb.GetAccountRequest, context: Any) -> pb.Account:
        return messages.to_account(await self._accounts.get(request.account_id))

    async def ListAccounts(self, request: pb.ListAccountsRequest, context: Any) -> pb.ListAccountsReply:
        result, cursor = await self._accounts.page(request.prefix, request.limit, request.cursor)
        return pb.ListAccountsReply(accounts=map(messages.to_account, result), next_cursor=cursor)

    async def ListPayments(self, request: pb.ListPaymentsRequest, context: Any) -> pb.ListPaymentsReply:
        wanted = PaymentFilter(request.task_id, request.device_id, request.owner_id, request.since, request.until)
        result, cursor = await self._reports.payments(wanted, request.limit, request.cursor)
        return pb.ListPaymentsReply(payments=map(messages.to_payment, result), next_cursor=cursor)

    async def GetStatement(self, request: pb.GetStatementRequest, context: Any) -> pb.Statement:
        result = await self._accounts.statement(
            request.account_id, request.since, request.until, request.limit, request.cursor
        )
        return messages.to_statement(result)

    async def Verify(self, request: pb.VerifyRequest, context: Any) -> pb.VerifyReply:
        started = time.perf_counter()
        result = await self._reports.verify()
        return pb.VerifyReply(
            sound=result.sound,
            entries=result.entries,
            postings=result.postings,
            head=result.head,
            faults=result.faults,
            seconds=time.perf_counter() - started,
        )

    async def Summarise(self, request: pb.SummariseRequest, context: Any) -> pb.Summary:
        return messages.to_summary(await self._reports.summarise(request.task_id))

    async def GetPrivacy(self, request: pb.GetPrivacyRequest, context: Any) -> pb.PrivacyReport:
        return messages.to_privacy(await self._reports.privacy(request.device_id, request.delta))
