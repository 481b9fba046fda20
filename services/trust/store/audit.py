"""The audit log in the database: hash-chained, written in the transaction of the act, never changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict

import sqlalchemy as sa

from services.kit.database.rows import Tx, columns, fetch_all
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import current_principal, current_request_id
from services.trust.domain.audit_chain import AuditHead, hash_entry
from services.trust.domain.records import AuditEntry
from services.trust.tables import audit, audit_head

_BATCH = 2_000
_COLUMNS = columns(AuditEntry, audit)
_HEAD = sa.select(*columns(AuditHead, audit_head))


async def note(tx: Tx, at: float, act: str, thing: str, remark: str = "") -> None:
    """Record that the current caller did `act` to `thing`.

    The chain's head is locked until the transaction ends, one writer at a time on either database: call this last, so
    that no transaction waits for another lock while it holds the head.
    """
    caller = current_principal()
    head = await _head(tx, lock=True)
    number = head.number + 1
    entry = AuditEntry(
        number=number,
        at=at,
        role=caller.role,
        subject=caller.subject,
        act=act,
        object=thing,
        request_id=current_request_id(),
        note=remark,
    )
    sealed = hash_entry(head.hash, entry)
    await tx.execute(sa.insert(audit), asdict(entry) | {"hash": sealed})
    await tx.execute(sa.update(audit_head).values(entries=head.entries + 1, number=number, hash=sealed))


async def read_head(tx: Tx) -> AuditHead:
    """Return the end of the chain."""
    return await _head(tx, lock=False)


async def _head(tx: Tx, *, lock: bool) -> AuditHead:
    return AuditHead(*(await tx.execute(_HEAD.with_for_update() if lock else _HEAD)).one())


async def stream(tx: Tx) -> AsyncIterator[list[tuple[AuditEntry, str]]]:
    """Yield every entry in order with its stored hash, in batches."""
    number = 0
    while True:
        query = sa.select(*_COLUMNS, audit.c.hash).where(audit.c.number > number).order_by(audit.c.number)
        rows = (await tx.execute(query.limit(_BATCH))).all()
        if not rows:
            return
        yield [(AuditEntry(*row[:-1]), row[-1]) for row in rows]
        number = rows[-1].number


async def page(tx: Tx, wanted: Page, subject: str, act: str) -> list[AuditEntry]:
    """List entries, newest first, of one subject and one act unless these are empty."""
    query = sa.select(*_COLUMNS).order_by(audit.c.number.desc()).limit(wanted.limit)
    if wanted.cursor:
        query = query.where(audit.c.number < int(wanted.cursor))
    if subject:
        query = query.where(audit.c.subject == subject)
    if act:
        query = query.where(audit.c.act == act)
    return await fetch_all(tx, query, AuditEntry)
