"""The book and its guards, accounts, escrows, settlements, quotes, privacy charges."""

import hashlib

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
APPEND_ONLY = ("entries", "postings", "payments", "privacy_charges")
UNBALANCED = "the postings of an entry must sum to zero and be as many as it says"
SEALED = "the entry is sealed: it takes no more postings"


def upgrade() -> None:
    _create_book()
    _create_accounts()
    _create_quotes()
    _create_privacy()
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


def _entry_reference() -> sa.ForeignKey:
    return sa.ForeignKey("entries.number", deferrable=True, initially="DEFERRED")


def _create_book() -> None:
    book = op.create_table(
        "book",
        sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1"), primary_key=True, autoincrement=False),
        sa.Column("entries", sa.BigInteger, nullable=False),
        sa.Column("postings", sa.BigInteger, nullable=False),
        sa.Column("payments", sa.BigInteger, nullable=False),
        sa.Column("head", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    genesis = hashlib.sha256(b"coterie book 1").hexdigest()
    op.bulk_insert(book, [{"id": 1, "entries": 0, "postings": 0, "payments": 0, "head": genesis, "at": 0.0}])
    op.create_table(
        "entries",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("attachment", sa.Text, nullable=False),
        sa.Column("postings", sa.Integer, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.create_table(
        "postings",
        sa.Column("entry", sa.BigInteger, _entry_reference(), primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("account_id", Id, nullable=False),
        sa.Column("amount", sa.BigInteger, sa.CheckConstraint("amount <> 0"), nullable=False),
        sa.Index("ix_postings_account", "account_id", "entry"),
        sqlite_with_rowid=False,
    )


def _create_accounts() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", Id, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner_id", Id, nullable=False),
        sa.Column("balance", sa.BigInteger, nullable=False),
        sa.Column("opened_at", sa.Double, nullable=False),
        sa.CheckConstraint("balance >= 0 OR id = 'platform:mint'", name="ck_accounts_balance"),
        sa.Index("ix_accounts_owner", "owner_id"),
    )
    op.create_table(
        "escrows",
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("publisher", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("opened_at", sa.Double, nullable=False),
        sa.Column("released_at", sa.Double),
    )
    op.create_table(
        "settlements",
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("owed", sa.BigInteger, nullable=False),
        sa.Column("paid", sa.BigInteger, nullable=False),
        sa.Column("escrow", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
    op.create_table(
        "payments",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("task_id", Id, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("device_id", Id, nullable=False),
        sa.Column("owner_id", Id, nullable=False),
        sa.Column("amount", sa.BigInteger, sa.CheckConstraint("amount > 0"), nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("budget", sa.Double, nullable=False),
        sa.Column("quality", sa.Double, nullable=False),
        sa.Column("because", sa.Text, nullable=False),
        sa.Column("entry", sa.BigInteger, _entry_reference(), nullable=False),
        sa.UniqueConstraint("task_id", "round", "device_id"),
        sa.Index("ix_payments_task", "task_id", "number"),
        sa.Index("ix_payments_device", "device_id", "number"),
        sa.Index("ix_payments_owner", "owner_id", "number"),
        sa.Index("ix_payments_entry", "entry", "number"),
    )


def _create_quotes() -> None:
    op.create_table(
        "quotes",
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("incentive", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("pot", sa.BigInteger, nullable=False),
        sa.Column("offers", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )


def _create_privacy() -> None:
    op.create_table(
        "privacy_charges",
        sa.Column("device_id", Id, primary_key=True),
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("mechanism", sa.Text, nullable=False),
        sa.Column("parameter", sa.Double, nullable=False),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("sampling_rate", sa.Double, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "privacy_totals",
        sa.Column("device_id", Id, primary_key=True),
        sa.Column("task_id", Id, primary_key=True),
        sa.Column("unit", sa.Text, primary_key=True),
        sa.Column("mechanism", sa.Text, primary_key=True),
        sa.Column("parameter", sa.Double, primary_key=True),
        sa.Column("sampling_rate", sa.Double, primary_key=True),
        sa.Column("amount", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )


def _guard_sqlite() -> None:
    op.execute(
        f"""CREATE TRIGGER entries_balance BEFORE INSERT ON entries
        WHEN (SELECT COALESCE(SUM(amount), 0) <> 0 OR COUNT(*) <> NEW.postings FROM postings WHERE entry = NEW.number)
        BEGIN SELECT RAISE(ABORT, '{UNBALANCED}'); END"""
    )
    op.execute(
        f"""CREATE TRIGGER postings_sealed BEFORE INSERT ON postings
        WHEN EXISTS (SELECT 1 FROM entries WHERE number = NEW.entry)
        BEGIN SELECT RAISE(ABORT, '{SEALED}'); END"""
    )
    for table in APPEND_ONLY:
        for act in ("UPDATE", "DELETE"):
            op.execute(
                f"""CREATE TRIGGER {table}_no_{act.lower()} BEFORE {act} ON {table}
                BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"""
            )


def _guard_postgresql() -> None:
    op.execute(
        f"""CREATE FUNCTION check_entry() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF (SELECT COALESCE(SUM(amount), 0) <> 0 OR COUNT(*) <> NEW.postings FROM postings WHERE entry = NEW.number)
        THEN RAISE EXCEPTION '{UNBALANCED}' USING ERRCODE = 'check_violation'; END IF;
        RETURN NEW; END $$"""
    )
    op.execute("CREATE TRIGGER entries_balance BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION check_entry()")
    op.execute(
        f"""CREATE FUNCTION check_posting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF EXISTS (SELECT 1 FROM entries WHERE number = NEW.entry)
        THEN RAISE EXCEPTION '{SEALED}' USING ERRCODE = 'check_violation'; END IF;
        RETURN NEW; END $$"""
    )
    op.execute("CREATE TRIGGER postings_sealed BEFORE INSERT ON postings FOR EACH ROW EXECUTE FUNCTION check_posting()")
    op.execute(
        """CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'check_violation'; END $$"""
    )
    for table in APPEND_ONLY:
        op.execute(
            f"""CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
            FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"""
        )


def downgrade() -> None:
    tables = ("privacy_totals", "privacy_charges", "quotes", "payments", "settlements", "escrows", "accounts")
    for table in (*tables, "postings", "entries", "book"):
        op.drop_table(table)
    if op.get_bind().dialect.name != "sqlite":
        for function in ("check_entry", "check_posting", "refuse_change"):
            op.execute(f"DROP FUNCTION {function}()")
