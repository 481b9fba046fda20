"""First rows of the trust registry. Part of revision 0001: never change it after a release."""

import sqlalchemy as sa
from alembic import op

from services.trust.domain.audit_chain import GENESIS


def create() -> None:
    """Insert the rows of the tables that always have exactly one."""
    head = sa.table("audit_head", *(sa.column(name) for name in ("id", "entries", "number", "hash")))
    op.bulk_insert(head, [{"id": 1, "entries": 0, "number": 0, "hash": GENESIS}])
    op.bulk_insert(sa.table("social_version", sa.column("version")), [{"version": 0}])
