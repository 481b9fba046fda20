"""the audit log is a chain of hashes; entries from before are chained as they stand."""

import sqlalchemy as sa
from alembic import op

from services.trust.domain.audit_chain import GENESIS, hash_entry
from services.trust.domain.records import AuditEntry

revision = "0004"
down_revision = "0003"

Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_BATCH = 1_000
_FIELDS = ("number", "at", "role", "subject", "act", "object", "request_id", "note")
_audit = sa.table("audit", *(sa.column(name) for name in _FIELDS), sa.column("hash", sa.Text))


def upgrade() -> None:
    op.add_column("audit", sa.Column("hash", sa.Text(), nullable=False, server_default=""))
    head = op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
        sa.Column("entries", sa.BigInteger, nullable=False),
        sa.Column("number", Number, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    entries, number, last = _chain()
    op.execute(head.insert().values(id=1, entries=entries, number=number, hash=last))


def _chain() -> tuple[int, int, str]:
    """Seals every entry there is, some at a time; how many there are, the last one's number and hash."""
    connection = op.get_bind()
    entries, number, last = 0, 0, GENESIS
    sealed = _audit.update().where(_audit.c.number == sa.bindparam("which")).values(hash=sa.bindparam("seal"))
    while True:
        query = sa.select(*(_audit.c[name] for name in _FIELDS)).where(_audit.c.number > number)
        rows = connection.execute(query.order_by(_audit.c.number).limit(_BATCH)).all()
        if not rows:
            return entries, number, last
        seals = []
        for row in rows:
            last = hash_entry(last, AuditEntry(*row))
            seals.append({"which": row.number, "seal": last})
        connection.execute(sealed, seals)
        entries, number = entries + len(rows), rows[-1].number
