"""Triggers and the first row of the ledger. Part of revision 0001: never change it after a release."""

import hashlib

import sqlalchemy as sa
from alembic import op

APPEND_ONLY = ("entries", "postings", "payments", "privacy_charges")
UNBALANCED = "the postings of an entry must sum to zero and be as many as it says"
SEALED = "the entry is sealed: it takes no more postings"


def create() -> None:
    """Insert the head of the chain, and make the ledger append-only."""
    columns = ("id", "entries", "postings", "payments", "head", "at")
    genesis = hashlib.sha256(b"coterie book 1").hexdigest()
    head = {"id": 1, "entries": 0, "postings": 0, "payments": 0, "head": genesis, "at": 0.0}
    op.bulk_insert(sa.table("book", *(sa.column(name) for name in columns)), [head])
    if op.get_bind().dialect.name == "sqlite":
        _guard_sqlite()
    else:
        _guard_postgresql()


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
