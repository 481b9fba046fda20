"""The ledger in the database: the chain's head, entries, postings, and the balances that follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_all, fetch_one, insert_rows
from services.kit.observability.metrics import MONEY_TOTAL
from services.kit.rpc.paging import Page
from services.pricing.domain.ledger import Entry, Head, Posting, check_balanced, hash_entry
from services.pricing.domain.records import Account, Line
from services.pricing.tables import accounts, book, entries, postings

_BATCH = 500
_STREAM_ROWS = 20_000
_HEAD = sa.select(book.c.entries, book.c.postings, book.c.payments, book.c.head, book.c.at)
_HEAD_LOCKED = _HEAD.with_for_update()
_held = accounts.alias("held")
# An owner's account has no postings: its balance is the sum of its devices' balances.
_BALANCE = sa.case(
    (
        accounts.c.kind == "owner",
        sa.select(sa.cast(sa.func.coalesce(sa.func.sum(_held.c.balance), 0), sa.BigInteger))
        .where(_held.c.owner_id == sa.func.substr(accounts.c.id, len("owner:") + 1), _held.c.kind == "device")
        .scalar_subquery(),
    ),
    else_=accounts.c.balance,
)
_ACCOUNT = columns(Account, accounts, balance_microcredits=_BALANCE)
_ACCOUNT_OF: sa.Select[Any] = sa.select(*_ACCOUNT).where(accounts.c.id == sa.bindparam("p_account"))
_POSTING = columns(Posting, postings, amount_microcredits=postings.c.amount)

_LINE = columns(
    Line, postings, amount_microcredits=postings.c.amount, at=entries.c.at, kind=entries.c.kind, note=entries.c.note
)


async def lock_head(tx: Tx) -> Head:
    """Return the end of the chain, locked until the transaction ends: one writer at a time on either database."""
    return Head(*(await tx.execute(_HEAD_LOCKED)).one())


async def read_head(tx: Tx) -> Head:
    """Return the end of the chain."""
    return Head(*(await tx.execute(_HEAD)).one())


async def append(tx: Tx, head: Head, entry: Entry, payments: int = 0) -> None:
    """Write the entry that follows the locked `head` and makes `payments` payments; update all balances."""
    check_balanced(entry.postings)
    rows = [(entry.number, i, p.account_id, p.amount_microcredits) for i, p in enumerate(entry.postings)]
    await insert_rows(tx, list(postings.c), rows)
    sealed = hash_entry(head.hash, entry)
    header = {
        "number": entry.number,
        "at": entry.at,
        "kind": entry.kind,
        "key": entry.key,
        "note": entry.note,
        "attachment": entry.attachment,
        "postings": len(rows),
        "hash": sealed,
    }
    await tx.execute(sa.insert(entries), header)
    await _move_balances(tx, entry)
    changed = {
        "entries": entry.number,
        "postings": head.postings + len(rows),
        "payments": head.payments + payments,
        "head": sealed,
        "at": entry.at,
    }
    await tx.execute(sa.update(book).values(**changed))
    moved = sum(p.amount_microcredits for p in entry.postings if p.amount_microcredits > 0)
    tx.after_commit(lambda: MONEY_TOTAL.labels(entry.kind).inc(moved))


async def _move_balances(tx: Tx, entry: Entry) -> None:
    moved: dict[str, int] = defaultdict(int)
    for posting in entry.postings:
        moved[posting.account_id] += posting.amount_microcredits
    # Money out of an account needs it to exist; only money into one may open it.
    await open_accounts(tx, [account_id for account_id, by in moved.items() if by < 0], entry.at, {})
    for account_id, by in moved.items():
        if by < 0:
            change = sa.update(accounts).where(accounts.c.id == account_id)
            await tx.execute(change.values(balance=accounts.c.balance + by))
    rows = [_opened(account_id, "", by, entry.at) for account_id, by in sorted(moved.items()) if by > 0]
    added = "(id) DO UPDATE SET balance = accounts.balance + excluded.balance"
    await insert_rows(tx, list(accounts.c), rows, added)


async def open_accounts(tx: Tx, account_ids: Iterable[str], at: float, owners: Mapping[str, str]) -> None:
    """Open the missing accounts with a balance of 0; `owners` maps device accounts to owners' ids."""
    rows = [_opened(account_id, owners.get(account_id, ""), 0, at) for account_id in sorted(set(account_ids))]
    await insert_rows(tx, list(accounts.c), rows, "(id) DO NOTHING")


def _opened(account_id: str, owner_id: str, balance: int, at: float) -> tuple[str, str, str, int, float]:
    return account_id, account_id.partition(":")[0], owner_id, balance, at


async def find_entry(tx: Tx, key: str) -> tuple[int, list[Posting]] | None:
    """Return number and postings of the entry with that key."""
    number = (await tx.execute(sa.select(entries.c.number).where(entries.c.key == key))).scalar_one_or_none()
    if number is None:
        return None
    query = sa.select(*_POSTING).where(postings.c.entry == number).order_by(postings.c.position)
    return number, await fetch_all(tx, query, Posting)


async def find_account(tx: Tx, account_id: str) -> Account | None:
    return await fetch_one(tx, _ACCOUNT_OF, Account, {"p_account": account_id})


async def list_accounts(tx: Tx, prefix: str, after: str, limit: int) -> list[Account]:
    """List accounts in order of id."""
    query = sa.select(*_ACCOUNT).where(accounts.c.id > after).order_by(accounts.c.id).limit(limit)
    if prefix:
        query = query.where(accounts.c.id >= prefix, accounts.c.id < prefix + "\U0010ffff")
    return await fetch_all(tx, query, Account)


async def sum_balances(tx: Tx, kind: str) -> int:
    """Return the sum of all balances of a kind."""
    query = sa.select(sa.func.coalesce(sa.func.sum(accounts.c.balance), 0)).where(accounts.c.kind == kind)
    return int((await tx.execute(query)).scalar_one())


def _of_account(account_id: str) -> sa.ColumnElement[bool]:
    """Condition for the postings of an account; an owner's are those of its devices."""
    kind, _, name = account_id.partition(":")
    if kind != "owner":
        return postings.c.account_id == account_id
    return postings.c.account_id.in_(sa.select(accounts.c.id).where(accounts.c.owner_id == name))


async def sum_before(tx: Tx, account_id: str, at: float) -> int:
    """Return the balance of an account just before `at`."""
    query = (
        sa.select(sa.func.coalesce(sa.func.sum(postings.c.amount), 0))
        .join(entries, entries.c.number == postings.c.entry)
        .where(_of_account(account_id), entries.c.at < at)
    )
    return int((await tx.execute(query)).scalar_one())


async def list_lines(tx: Tx, account_id: str, since: float, until: float, page: Page) -> list[Line]:
    """List postings of an account in [since, until), oldest first; the cursor is `entry.position` of the last one."""
    entry, _, position = page.cursor.partition(".")
    after = int(entry or 0), int(position or 0)
    place = (postings.c.entry, postings.c.position)
    query = (
        sa.select(*_LINE)
        .join(entries, entries.c.number == postings.c.entry)
        .where(_of_account(account_id), entries.c.at >= since, entries.c.at < until)
        .where(sa.tuple_(*place) > sa.tuple_(*map(sa.literal, after)))
        .order_by(*place)
        .limit(page.limit)
    )
    return await fetch_all(tx, query, Line)


async def stream_entries(tx: Tx, last: int) -> AsyncIterator[list[tuple[Entry, str]]]:
    """Yield entries 1 to `last` in order with their stored hashes, in batches of bounded numbers of postings."""
    number = 0
    while number < last:
        query = sa.select(entries).where(entries.c.number > number, entries.c.number <= last)
        headers = (await tx.execute(query.order_by(entries.c.number).limit(_BATCH))).all()
        if not headers:
            return
        for group in _grouped(headers):
            result = await _read_postings(tx, group[0].number, group[-1].number)
            yield [
                (
                    Entry(
                        number=h.number,
                        at=h.at,
                        kind=h.kind,
                        key=h.key,
                        note=h.note,
                        attachment=h.attachment,
                        postings=tuple(result[h.number]),
                    ),
                    h.hash,
                )
                for h in group
            ]
        number = headers[-1].number


def _grouped(headers: Sequence[sa.Row[Any]]) -> Iterator[list[sa.Row[Any]]]:
    group: list[sa.Row[Any]] = []
    held = 0
    for header in headers:
        if group and held + header.postings > _STREAM_ROWS:
            yield group
            group, held = [], 0
        group.append(header)
        held += header.postings
    yield group


async def _read_postings(tx: Tx, first: int, last: int) -> dict[int, list[Posting]]:
    result: dict[int, list[Posting]] = defaultdict(list)
    query = sa.select(postings.c.entry, postings.c.account_id, postings.c.amount)
    query = query.where(postings.c.entry.between(first, last)).order_by(postings.c.entry, postings.c.position)
    for entry, account_id, amount in await tx.execute(query):
        result[entry].append(Posting(account_id, amount))
    return result


async def stream_balances(tx: Tx) -> AsyncIterator[list[tuple[str, int]]]:
    """Yield the id and stored balance of every account, in batches."""
    async for rows in tx.partitions(sa.select(accounts.c.id, accounts.c.balance), _STREAM_ROWS):
        yield [(account_id, balance) for account_id, balance in rows]


async def count_postings(tx: Tx) -> int:
    return int((await tx.execute(sa.select(sa.func.count()).select_from(postings))).scalar_one())
