"""Reading and verifying the audit log."""

from __future__ import annotations

import asyncio

from services.kit.database.engine import Database
from services.kit.rpc.paging import Page
from services.kit.rpc.principal import require_role
from services.trust.domain import checks
from services.trust.domain.audit_chain import AuditCheck, AuditVerdict
from services.trust.domain.records import AuditEntry
from services.trust.store import audit


class Auditing:
    """The audit log: who did what, when."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: Page, subject: str, act: str) -> list[AuditEntry]:
        """List entries, newest first."""
        require_role("admin")
        checks.require_text("subject", subject)
        checks.require_text("act", act)
        async with self._database.reading() as tx:
            return await audit.page(tx, wanted, subject, act)

    async def verify(self) -> AuditVerdict:
        """Check the chain from its first entry to its head, in one consistent snapshot."""
        require_role("admin")
        check = AuditCheck()
        async with self._database.reading(offload=True, snapshot=True) as tx:
            head = await audit.read_head(tx)
            async for batch in audit.stream(tx):
                await asyncio.to_thread(check.take, batch)
        return check.verdict(head)
