"""Settling a round: all its payments and charges, in one transaction, once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from coterie.records.enums import ParticipationState
from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.runtime.clock import Clock
from services.kit.runtime.concurrency import thread_if_large
from services.pricing.domain import checks
from services.pricing.domain.ledger import FEES, Entry, Head, Payment, Posting, attach
from services.pricing.domain.ledger_settlement import (
    Due,
    Work,
    compute_dues,
    digest_work,
    fit_escrow,
)
from services.pricing.domain.money import MICRO
from services.pricing.domain.payoffs import Payoffs
from services.pricing.domain.payoffs import owed as compute_owed
from services.pricing.domain.records import Quote, Settled, Settlement
from services.pricing.errors import BadRound, EscrowReleased, SettlementDiffers, UnknownEscrow, UnknownQuote
from services.pricing.store import ledger_store, payments, privacy, quotes
from services.pricing.usecases.access import require_platform


class Settling:
    """Settles rounds."""

    def __init__(self, database: Database, clock: Clock, fee_parts_per_million: int = 0) -> None:
        self._database = database
        self._clock = clock
        self._fee = fee_parts_per_million

    async def settle(
        self, task_id: str, round_number: int, work: Sequence[Work], payoffs: Payoffs | None = None
    ) -> Settled:
        """Pay a round's delivered work and its clusters from the task's escrow, and charge its privacy.

        A repeat returns the settlement; a repeat with different delivered work is refused.
        """
        require_platform()
        checks.require_name("task_id", task_id)
        checks.require_round_number(round_number)
        _check_work(work)
        if payoffs is not None:
            work = await self._with_payoffs(task_id, round_number, work, payoffs)
        digest = await thread_if_large(len(work), digest_work, work)
        async with self._database.writing() as tx:
            head = await ledger_store.lock_head(tx)
            existing = await payments.find_settlement(tx, task_id, round_number)
            if existing is None:
                return await self._settle(
                    tx, head, task_id=task_id, round_number=round_number, work=work, digest=digest
                )
            if existing.digest != digest:
                raise SettlementDiffers(
                    f"round {round_number} of task {task_id} was settled for different work; a settlement never changes"
                )
            return Settled(existing, await payments.list_of_round(tx, task_id, round_number), fresh=False)

    async def _with_payoffs(
        self, task_id: str, round_number: int, work: Sequence[Work], payoffs: Payoffs
    ) -> list[Work]:
        async with self._database.reading() as tx:
            quote = await _quote(tx, task_id, round_number)
        owed = await asyncio.to_thread(compute_owed, payoffs, quote.pot_microcredits)
        return [replace(w, payoff_microcredits=owed.get(w.device_id)) for w in work]

    async def _settle(
        self, tx: Tx, head: Head, task_id: str, round_number: int, work: Sequence[Work], digest: str
    ) -> Settled:
        balance = await self._check_escrow(tx, task_id)
        quote = await _quote(tx, task_id, round_number)
        dues = await thread_if_large(len(work), compute_dues, quote, work)
        owed = sum(due.amount_microcredits for due in dues)
        paid = await thread_if_large(len(dues), fit_escrow, dues, balance)
        now = max(self._clock.now(), head.at)
        made = _payments(paid, head.payments, now, task_id, round_number)
        total = sum(p.amount_microcredits for p in made)
        fee = min(total * self._fee // MICRO, balance - total)
        settlement = Settlement(
            task_id=task_id,
            round=round_number,
            at=now,
            owed_microcredits=owed,
            paid_microcredits=total,
            escrow_microcredits=balance - total - fee,
            digest=digest,
        )
        delivered = [w for w in work if w.outcome is ParticipationState.DELIVERED]
        await _open_accounts(tx, delivered, now)
        if made:
            await _write(tx, head, settlement, made, fee)
        await payments.add_settlement(tx, settlement)
        await privacy.add_charges(tx, task_id, round_number, delivered)
        return Settled(settlement, made, fresh=True)

    async def _check_escrow(self, tx: Tx, task_id: str) -> int:
        escrow = await payments.find_escrow(tx, task_id)
        account = await ledger_store.find_account(tx, f"escrow:{task_id}")
        if escrow is None or account is None:
            raise UnknownEscrow(f"task {task_id} has no escrow to pay from; open one first (0 credits are allowed)")
        if escrow.released_at is not None:
            raise EscrowReleased(f"the escrow of task {task_id} was released; its rounds are no longer paid")
        return account.balance_microcredits


async def _quote(tx: Tx, task_id: str, round_number: int) -> Quote:
    result = await quotes.find(tx, task_id, round_number)
    if result is None:
        raise UnknownQuote(f"round {round_number} of task {task_id} has no quote; quote it first")
    return result


def _check_work(work: Sequence[Work]) -> None:
    seen: set[str] = set()
    for w in work:
        checks.require_name("device_id", w.device_id)
        checks.require_optional_name("owner_id", w.owner_id)
        if w.device_id in seen:
            raise BadRound(f"device {w.device_id} occurs twice in the round's work; send each device once")
        seen.add(w.device_id)


def _payments(dues: Sequence[Due], last: int, now: float, task_id: str, round_number: int) -> list[Payment]:
    return [
        Payment(
            number=number,
            at=now,
            task_id=task_id,
            round=round_number,
            device_id=due.work.device_id,
            owner_id=due.work.owner_id,
            amount_microcredits=due.amount_microcredits,
            price_microcredits=due.price_microcredits,
            budget=due.work.budget,
            quality=due.work.quality,
            because=due.because,
        )
        for number, due in enumerate(dues, start=last + 1)
    ]


async def _open_accounts(tx: Tx, delivered: Sequence[Work], now: float) -> None:
    owners = {f"device:{w.device_id}": w.owner_id for w in delivered}
    names = {f"owner:{owner}" for owner in owners.values() if owner}
    await ledger_store.open_accounts(tx, [*owners, *names], now, owners)


async def _write(tx: Tx, head: Head, settled: Settlement, made: Sequence[Payment], fee: int) -> None:
    """Write the settlement's entry: from the escrow to the devices' accounts and the platform's fees."""
    sides = [Posting(f"escrow:{settled.task_id}", -settled.paid_microcredits - fee)]
    sides += [Posting(f"device:{p.device_id}", p.amount_microcredits) for p in made]
    sides += [Posting(FEES, fee)] if fee else []
    number, attachment = head.entries + 1, await thread_if_large(len(made), attach, made)
    key, note = f"payment:{settled.task_id}:{settled.round}", f"round {settled.round} of task {settled.task_id}"
    entry = Entry(
        number=number, at=settled.at, kind="payment", key=key, note=note, attachment=attachment, postings=tuple(sides)
    )
    await payments.add_payments(tx, made, number)
    await ledger_store.append(tx, head, entry, len(made))
