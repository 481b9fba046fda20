"""Reading the audit log."""

from __future__ import annotations

from services.kit.caller import require_role
from services.kit.database import Database
from services.kit.paging import Page
from services.trust.domain import checks
from services.trust.domain.records import AuditEntry
from services.trust.store import audit


class Auditing:
    """Who did what, when."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: Page, subject: str, act: str) -> list[AuditEntry]:
        """Entries, newest first."""
        require_role("admin")
        checks.text("subject", subject)
        checks.text("act", act)
        async with self._database.reading() as tx:
            return await audit.page(tx, wanted, subject, act)
