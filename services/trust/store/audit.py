"""The audit log in the database: written in the transaction of the act itself, never changed."""

from __future__ import annotations

import sqlalchemy as sa

from services.kit.caller import current_caller, current_request_id
from services.kit.rows import Tx
from services.trust.domain.records import AuditEntry, Page
from services.trust.tables import audit

_COLUMNS = (
    audit.c.number,
    audit.c.at,
    audit.c.role,
    audit.c.subject,
    audit.c.act,
    audit.c.object,
    audit.c.request_id,
    audit.c.note,
)


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
    return [AuditEntry(*row) for row in await tx.execute(query)]
