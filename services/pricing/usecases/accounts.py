"""Accounts: deposits, escrows, balances, statements."""

from __future__ import annotations

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.rpc.paging import NUMBER, next_cursor, page_size, read_page
from services.kit.rpc.principal import NotAllowed, require_role
from services.kit.runtime.clock import Clock
from services.pricing.domain import checks
from services.pricing.domain.ledger import MINT, MOST_MICROCREDITS, Entry, Head, Posting
from services.pricing.domain.money import credits
from services.pricing.domain.records import Account, Escrow, Statement
from services.pricing.errors import (
    BadAmount,
    DepositDiffers,
    EscrowDiffers,
    EscrowReleased,
    InsufficientFunds,
    UnknownAccount,
    UnknownEscrow,
)
from services.pricing.store import ledger_store, payments
from services.pricing.usecases.access import is_own, require_platform, require_publisher, sees_all

MOST_ACCOUNTS = 500
MOST_LINES = 1000
PLACE = rf"{NUMBER}\.[0-9]{{1,9}}"
"""Pattern of a statement's cursors: an entry and the position in it."""


class Accounts:
    """Deposits, escrows, balances and statements."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def deposit(self, publisher: str, amount: int, key: str) -> Account:
        """Credit a publisher; repeating the same key changes nothing."""
        require_platform()
        checks.require_name("publisher", publisher)
        checks.require_amount(amount, 1)
        account_id, key = f"publisher:{publisher}", f"deposit:{publisher}:{checks.require_key(key)}"
        async with self._database.writing() as tx:
            head = await ledger_store.lock_head(tx)
            existing = await ledger_store.find_entry(tx, key)
            if existing is None:
                await self._check_room(tx, amount)
                await self._move(
                    tx,
                    head,
                    kind="deposit",
                    key=key,
                    note="credits put in",
                    source=MINT,
                    target=account_id,
                    amount=amount,
                )
            elif Posting(account_id, amount) not in existing[1]:
                raise DepositDiffers(f"key {key.removeprefix('deposit:')!r} belongs to another amount; use a fresh key")
            return await _known(tx, account_id)

    async def open_escrow(self, task_id: str, publisher: str, amount: int) -> Account:
        """Move credits into a task's escrow; repeating it changes nothing."""
        checks.require_name("task_id", task_id)
        require_publisher(checks.require_name("publisher", publisher))
        checks.require_amount(amount, 0)
        account_id = f"escrow:{task_id}"
        async with self._database.writing() as tx:
            head = await ledger_store.lock_head(tx)
            existing = await payments.find_escrow(tx, task_id)
            if existing is None:
                now = max(self._clock.now(), head.at)
                await payments.add_escrow(tx, Escrow(task_id, publisher, amount, now, None))
                await ledger_store.open_accounts(tx, [account_id], now, {})
                if amount:
                    await _check_funds(tx, publisher, amount)
                    note = f"for task {task_id}"
                    await self._move(
                        tx,
                        head,
                        kind="escrow",
                        key=account_id,
                        note=note,
                        source=f"publisher:{publisher}",
                        target=account_id,
                        amount=amount,
                    )
            elif (existing.publisher, existing.amount_microcredits) != (publisher, amount):
                raise EscrowDiffers(
                    f"task {task_id} has an escrow of {credits(existing.amount_microcredits)} credits from "
                    f"{existing.publisher}; it cannot be changed"
                )
            elif existing.released_at is not None:
                raise EscrowReleased(f"the escrow of task {task_id} was released; create another task")
            return await _known(tx, account_id)

    async def release_escrow(self, task_id: str) -> Account:
        """Return what is left of an escrow to its publisher, and return the publisher's account."""
        require_platform()
        account_id = f"escrow:{checks.require_name('task_id', task_id)}"
        async with self._database.writing() as tx:
            head = await ledger_store.lock_head(tx)
            escrow = await payments.find_escrow(tx, task_id)
            if escrow is None:
                raise UnknownEscrow(f"task {task_id} has no escrow; open one first")
            publisher_id = f"publisher:{escrow.publisher}"
            if escrow.released_at is None:
                now = max(self._clock.now(), head.at)
                await payments.mark_released(tx, task_id, now)
                await ledger_store.open_accounts(tx, [publisher_id], now, {})
                left = (await _known(tx, account_id)).balance_microcredits
                if left:
                    note = f"left of task {task_id}"
                    await self._move(
                        tx,
                        head,
                        kind="release",
                        key=f"release:{task_id}",
                        note=note,
                        source=account_id,
                        target=publisher_id,
                        amount=left,
                    )
            return await _known(tx, publisher_id)

    async def get(self, account_id: str) -> Account:
        """Return one account; the caller's own always exists, at first with a balance of 0."""
        async with self._database.reading() as tx:
            return await self._visible(tx, account_id)

    async def page(self, prefix: str, limit: int, cursor: str) -> tuple[list[Account], str]:
        """List accounts in order of id, with the cursor of the next page."""
        require_role("admin")
        size = page_size(limit, most=MOST_ACCOUNTS)
        async with self._database.reading() as tx:
            result = await ledger_store.list_accounts(tx, _sound(prefix), _sound(cursor), size)
        return result, next_cursor(result, size, lambda account: account.id)

    async def statement(self, account_id: str, since: float, until: float, limit: int, cursor: str) -> Statement:
        """Return an account's postings over a period, oldest first, with the balances before and after."""
        page = read_page(limit, cursor, PLACE, most=MOST_LINES)
        async with self._database.reading() as tx:
            head = await ledger_store.read_head(tx)
            start, end = checks.require_period(since, until, max(self._clock.now(), head.at))
            account = await self._visible(tx, account_id)
            opening = await ledger_store.sum_before(tx, account_id, start)
            closing = await ledger_store.sum_before(tx, account_id, end)
            lines = await ledger_store.list_lines(tx, account_id, start, end, page)
        following = next_cursor(lines, page.limit, lambda line: f"{line.entry}.{line.position}")
        return Statement(account, opening, closing, lines, following)

    async def _visible(self, tx: Tx, account_id: str) -> Account:
        result = await ledger_store.find_account(tx, _sound(account_id))
        if is_own(account_id):
            return result or Account(account_id, 0, 0.0)
        if not sees_all():
            await self._check_escrow_is_own(tx, account_id)
        if result is None:
            raise UnknownAccount(f"no account {account_id[:80]!r}; it opens with its first credits or its first round")
        return result

    async def _check_escrow_is_own(self, tx: Tx, account_id: str) -> None:
        caller = require_role("publisher")
        kind, _, task_id = account_id.partition(":")
        escrow = await payments.find_escrow(tx, task_id) if kind == "escrow" else None
        if escrow is None or escrow.publisher != caller.subject:
            raise NotAllowed(f"account {account_id[:80]} is not yours; yours is publisher:{caller.subject}")

    async def _check_room(self, tx: Tx, amount: int) -> None:
        mint = await ledger_store.find_account(tx, MINT)
        if mint is not None and amount - mint.balance_microcredits > MOST_MICROCREDITS:
            raise BadAmount(f"{credits(amount)} credits exceed what the ledger can still take; deposit less")

    async def _move(
        self, tx: Tx, head: Head, kind: str, key: str, note: str, source: str, target: str, amount: int
    ) -> None:
        at = max(self._clock.now(), head.at)
        sides = (Posting(source, -amount), Posting(target, amount))
        await ledger_store.append(
            tx,
            head,
            Entry(number=head.entries + 1, at=at, kind=kind, key=key, note=note, attachment="", postings=sides),
        )


async def _check_funds(tx: Tx, publisher: str, amount: int) -> None:
    account = await ledger_store.find_account(tx, f"publisher:{publisher}")
    held = account.balance_microcredits if account else 0
    if held < amount:
        raise InsufficientFunds(
            f"publisher {publisher} holds {credits(held)} credits and the escrow needs {credits(amount)}: "
            f"{credits(amount - held)} are missing; an admin deposits them, or lower the task's escrow",
            details={"missing_microcredits": str(amount - held)},
        )


async def _known(tx: Tx, account_id: str) -> Account:
    result = await ledger_store.find_account(tx, account_id)
    assert result is not None  # opened in this transaction, or in the one it repeats
    return result


def _sound(text: str) -> str:
    """Remove the characters that no id holds and PostgreSQL refuses to compare."""
    return text.replace("\x00", "")
