"""The audit log in the database: written in the transaction of the act itself, never changed."""

from __future__ import annotations

import sqlalchemy as sa

from services.kit.caller import current_caller, current_request_id
from services.kit.paging import Page
from services.kit.rows import Tx, columns, fetch_all
from services.trust.domain.records import AuditEntry
from services.trust.tables import audit

_COLUMNS = columns(AuditEntry, audit)


async def note(tx: Tx, at: float, act: str, thing: str, remark: str = "") -> None:
    """Writes that the present caller did `act` to `thing`."""
    caller = current_caller()
    await tx.execute(
        sa.insert(audit),
        {
            "at": at,
            "role": caller.role,
            "subject": caller.subject,
            "act": act,
            "object": thing,
            "request_id": current_request_id(),
            "note": remark,
        },
    )


async def page(tx: Tx, wanted: Page, subject: str, act: str) -> list[AuditEntry]:
    """Entries, newest first, of one subject and one act unless these are empty."""
    query = sa.select(*_COLUMNS).order_by(audit.c.number.desc()).limit(wanted.limit)
    if wanted.cursor:
        query = query.where(audit.c.number < int(wanted.cursor))
    if subject:
        query = query.where(audit.c.subject == subject)
    if act:
        query = query.where(audit.c.act == act)
    return await fetch_all(tx, query, AuditEntry)
