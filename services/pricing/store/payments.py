"""Escrows, settlements and payments in the database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_all, fetch_one, insert_rows
from services.kit.rpc.paging import Page
from services.pricing.domain.ledger import Payment
from services.pricing.domain.records import Earner, Escrow, PaymentFilter, Settlement, TaskCost
from services.pricing.tables import accounts, escrows, payments, settlements

_PAYMENT = columns(Payment, payments, amount_microcredits=payments.c.amount, price_microcredits=payments.c.price)
_ESCROW = columns(Escrow, escrows, amount_microcredits=escrows.c.amount)
_SETTLEMENT = columns(
    Settlement,
    settlements,
    owed_microcredits=settlements.c.owed,
    paid_microcredits=settlements.c.paid,
    escrow_microcredits=settlements.c.escrow,
)


# Compiled once: these statements run in every round.
_ESCROW_OF: sa.Select[Any] = sa.select(*_ESCROW).where(escrows.c.task_id == sa.bindparam("p_task"))
_SETTLEMENT_OF: sa.Select[Any] = sa.select(*_SETTLEMENT).where(
    settlements.c.task_id == sa.bindparam("p_task"), settlements.c.round == sa.bindparam("p_round")
)
_ADD_SETTLEMENT = settlements.insert()


async def find_escrow(tx: Tx, task_id: str) -> Escrow | None:
    return await fetch_one(tx, _ESCROW_OF, Escrow, {"p_task": task_id})


async def add_escrow(tx: Tx, escrow: Escrow) -> None:
    """Store a new escrow."""
    row = {
        "task_id": escrow.task_id,
        "publisher": escrow.publisher,
        "amount": escrow.amount_microcredits,
        "opened_at": escrow.opened_at,
        "released_at": escrow.released_at,
    }
    await tx.execute(sa.insert(escrows), row)


async def mark_released(tx: Tx, task_id: str, at: float) -> None:
    """Record when an escrow was released."""
    await tx.execute(sa.update(escrows).where(escrows.c.task_id == task_id).values(released_at=at))


async def find_settlement(tx: Tx, task_id: str, round_number: int) -> Settlement | None:
    return await fetch_one(tx, _SETTLEMENT_OF, Settlement, {"p_task": task_id, "p_round": round_number})


async def add_settlement(tx: Tx, settlement: Settlement) -> None:
    """Store a round's settlement."""
    row = {
        "task_id": settlement.task_id,
        "round": settlement.round,
        "at": settlement.at,
        "owed": settlement.owed_microcredits,
        "paid": settlement.paid_microcredits,
        "escrow": settlement.escrow_microcredits,
        "digest": settlement.digest,
    }
    await tx.execute(_ADD_SETTLEMENT, row)


async def add_payments(tx: Tx, made: Sequence[Payment], entry: int) -> None:
    """Store the payments of an entry."""
    rows = [(*payment, entry) for payment in made]
    await insert_rows(tx, [*_PAYMENT, payments.c.entry], rows)


async def list_of_round(tx: Tx, task_id: str, round_number: int) -> list[Payment]:
    """List the payments of a round in order of number."""
    query = sa.select(*_PAYMENT).where(payments.c.task_id == task_id, payments.c.round == round_number)
    return await fetch_all(tx, query.order_by(payments.c.number), Payment)


async def list_page(tx: Tx, wanted: PaymentFilter, page: Page) -> list[Payment]:
    """List payments, newest first; the cursor is the number of the last one."""
    query = sa.select(*_PAYMENT).order_by(payments.c.number.desc()).limit(page.limit)
    for column, value in (
        (payments.c.task_id, wanted.task_id),
        (payments.c.device_id, wanted.device_id),
        (payments.c.owner_id, wanted.owner_id),
    ):
        if value:
            query = query.where(column == value)
    if wanted.since:
        query = query.where(payments.c.at >= wanted.since)
    if wanted.until:
        query = query.where(payments.c.at < wanted.until)
    if page.cursor:
        query = query.where(payments.c.number < int(page.cursor))
    return await fetch_all(tx, query, Payment)


async def list_of_entries(tx: Tx, first: int, last: int) -> dict[int, list[Payment]]:
    """Return the payments of entries `first` to `last`, in order, by entry."""
    result: dict[int, list[Payment]] = defaultdict(list)
    query = sa.select(payments.c.entry, *_PAYMENT).where(payments.c.entry.between(first, last))
    for row in await tx.execute(query.order_by(payments.c.entry, payments.c.number)):
        result[row[0]].append(Payment._make(row[1:]))
    return result


async def count_payments(tx: Tx) -> int:
    return int((await tx.execute(sa.select(sa.func.count()).select_from(payments))).scalar_one())


async def top_earners(tx: Tx, task_id: str, limit: int) -> list[Earner]:
    """List the devices that earned most, over all tasks or in one."""
    paid = sa.func.sum(payments.c.amount)
    query = sa.select(payments.c.device_id, payments.c.owner_id, paid, sa.func.count())
    if task_id:
        query = query.where(payments.c.task_id == task_id)
    query = query.group_by(payments.c.device_id, payments.c.owner_id)
    rows = await tx.execute(query.order_by(paid.desc(), payments.c.device_id).limit(limit))
    return [Earner(device, owner, int(total), int(times)) for device, owner, total, times in rows]


async def task_costs(tx: Tx, task_id: str, limit: int) -> list[TaskCost]:
    """List tasks by cost, highest first."""
    paid = sa.func.coalesce(sa.func.sum(settlements.c.paid), 0)
    query = (
        sa.select(escrows.c.task_id, accounts.c.balance, paid, sa.func.count(settlements.c.round))
        .join(accounts, accounts.c.id == sa.literal("escrow:").concat(escrows.c.task_id))
        .outerjoin(settlements, settlements.c.task_id == escrows.c.task_id)
        .group_by(escrows.c.task_id, accounts.c.balance)
        .order_by(paid.desc(), escrows.c.task_id)
        .limit(limit)
    )
    if task_id:
        query = query.where(escrows.c.task_id == task_id)
    rows = await tx.execute(query)
    return [TaskCost(task, int(left), int(total), int(rounds)) for task, left, total, rounds in rows]


async def sum_paid(tx: Tx, task_id: str) -> int:
    """Return the sum of payments, over all tasks or in one."""
    query = sa.select(sa.func.coalesce(sa.func.sum(settlements.c.paid), 0))
    if task_id:
        query = query.where(settlements.c.task_id == task_id)
    return int((await tx.execute(query)).scalar_one())


async def latest_settlements(tx: Tx, task_id: str, limit: int) -> list[Settlement]:
    """List settlements with dues, newest first."""
    query = sa.select(*_SETTLEMENT).where(settlements.c.owed > 0)
    if task_id:
        query = query.where(settlements.c.task_id == task_id)
    query = query.order_by(settlements.c.at.desc(), settlements.c.task_id, settlements.c.round.desc()).limit(limit)
    return await fetch_all(tx, query, Settlement)
