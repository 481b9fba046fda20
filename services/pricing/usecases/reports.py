"""Reports on the ledger: payments, totals, verification, privacy spent."""

from __future__ import annotations

import asyncio

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.paging import NUMBER, next_cursor, read_page
from services.kit.rpc.principal import NotAllowed, current_principal, require_device, require_role
from services.kit.runtime.clock import Clock
from services.pricing.domain import checks
from services.pricing.domain.ledger import Payment
from services.pricing.domain.ledger_anomalies import describe_outliers
from services.pricing.domain.ledger_check import LedgerCheck, Verdict
from services.pricing.domain.ledger_privacy import report
from services.pricing.domain.money import credits
from services.pricing.domain.records import PaymentFilter, PrivacyReport, Summary, TaskPrivacy
from services.pricing.store import ledger_store, payments, privacy
from services.pricing.usecases.access import sees_all

MOST_PAYMENTS = 1000
MOST_EARNERS = 20
MOST_TASKS = 100
MOST_ANOMALIES = 100
ROUNDS_WATCHED = 50


class Reports:
    """Reports on payments and on privacy spent."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def payments(self, wanted: PaymentFilter, limit: int, cursor: str) -> tuple[list[Payment], str]:
        """List payments, newest first, with the next cursor. Devices see their own, publishers those of their tasks."""
        page = read_page(limit, cursor, NUMBER, most=MOST_PAYMENTS)
        checks.require_period(wanted.since, wanted.until, self._clock.now())
        for what in ("task_id", "device_id", "owner_id"):
            checks.require_optional_name(what, getattr(wanted, what))
        async with self._database.reading() as tx:
            await _check_visible(tx, wanted.task_id, wanted.device_id)
            result = await payments.list_page(tx, wanted, page)
        return result, next_cursor(result, page.limit, lambda payment: str(payment.number))

    async def summarise(self, task_id: str) -> Summary:
        """Return totals over all tasks, or of one."""
        require_role("admin", "publisher")
        checks.require_optional_name("task_id", task_id)
        async with self._database.reading(offload=True) as tx:
            await _check_visible(tx, task_id, "")
            tasks = await payments.task_costs(tx, task_id, MOST_TASKS)
            outstanding = await ledger_store.sum_balances(tx, "escrow")
            if task_id:
                outstanding = sum(task.escrow_microcredits for task in tasks)
            return Summary(
                outstanding,
                await payments.sum_paid(tx, task_id),
                await payments.top_earners(tx, task_id, MOST_EARNERS),
                tasks,
                await _anomalies(tx, task_id),
            )

    async def verify(self) -> Verdict:
        """Recompute all sums and hashes of the ledger, in one consistent snapshot."""
        require_role("admin")
        check = LedgerCheck()
        async with self._database.reading(offload=True, snapshot=True) as tx:
            head = await ledger_store.read_head(tx)
            async for batch in ledger_store.stream_entries(tx, head.entries):
                made = await payments.list_of_entries(tx, batch[0][0].number, batch[-1][0].number)
                await asyncio.to_thread(check.take, [(entry, stored, made[entry.number]) for entry, stored in batch])
            async for rows in ledger_store.stream_balances(tx):
                check.compare(rows)
            check.expect("entries", head.entries, check.entries)
            check.expect("head", head.hash, check.head)
            check.expect("postings", head.postings, await ledger_store.count_postings(tx))
            check.expect("payments", head.payments, await payments.count_payments(tx))
        return check.verdict()

    async def privacy(self, device_id: str, delta: float) -> PrivacyReport:
        """Return the privacy a device spent, by task and composed over all of them."""
        require_device(checks.require_name("device_id", device_id))
        chosen = checks.require_delta(delta)
        async with self._database.reading() as tx:
            spent = await privacy.totals_of(tx, device_id)
        over_all, by_task = await asyncio.to_thread(report, spent, chosen)
        tasks = [TaskPrivacy(task.task_id, task.rounds, item) for task, item in zip(spent, by_task, strict=True)]
        return PrivacyReport(device_id, chosen, over_all, tasks)


async def _check_visible(tx: Tx, task_id: str, device_id: str) -> None:
    """Refuse a caller who asks for others' payments."""
    if sees_all():
        return
    caller = current_principal()
    if caller.role == "device":
        if device_id != caller.subject:
            raise NotAllowed(f"a device sees only its own payments; ask for device_id {caller.subject}")
        return
    escrow = await payments.find_escrow(tx, task_id) if task_id else None
    if caller.role != "publisher" or escrow is None or escrow.publisher != caller.subject:
        raise NotAllowed("a publisher sees only the payments of its tasks; give the task_id of one")


async def _anomalies(tx: Tx, task_id: str) -> list[str]:
    result: list[str] = []
    for settled in await payments.latest_settlements(tx, task_id, ROUNDS_WATCHED):
        if settled.exhausted:
            result.append(
                f"round {settled.round} of {settled.task_id}: the escrow covered "
                f"{credits(settled.paid_microcredits)} of {credits(settled.owed_microcredits)} credits owed"
            )
        made = await payments.list_of_round(tx, settled.task_id, settled.round)
        result += describe_outliers(made)
        if len(result) >= MOST_ANOMALIES:
            break
    return result[:MOST_ANOMALIES]
