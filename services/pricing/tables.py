"""Tables of the pricing engine. Triggers make the ledger (entries, postings, payments) append-only."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

Real: sa.Double[float] = sa.Double()
# Ids sort by their bytes on both databases, so cursors and prefixes behave the same.
Id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# One row: the end of the chain. Writers to the ledger lock it first.
book = sa.Table(
    "book",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("entries", sa.BigInteger, nullable=False),
    sa.Column("postings", sa.BigInteger, nullable=False),
    sa.Column("payments", sa.BigInteger, nullable=False),
    sa.Column("head", sa.Text, nullable=False),
    sa.Column("at", Real, nullable=False),
    sa.CheckConstraint("id = 1"),
)

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", Real, nullable=False, index=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("note", sa.Text, nullable=False),
    # SHA-256 of the entry's payments; empty without payments.
    sa.Column("attachment", sa.Text, nullable=False),
    sa.Column("postings", sa.Integer, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)

# Postings are written before the entry that seals them, so the foreign key is deferred to the commit.
postings = sa.Table(
    "postings",
    metadata,
    sa.Column(
        "entry",
        sa.BigInteger,
        sa.ForeignKey("entries.number", deferrable=True, initially="DEFERRED"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("account_id", Id, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.CheckConstraint("amount <> 0"),
    sa.Index("ix_postings_account", "account_id", "entry"),
    sqlite_with_rowid=False,
)

# Owners' accounts have no postings: their balance is the sum of their devices' (store/ledger_store.py).
accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("owner_id", Id, nullable=False),
    sa.Column("balance", sa.BigInteger, nullable=False),
    sa.Column("opened_at", Real, nullable=False),
    sa.CheckConstraint("balance >= 0 OR id = 'platform:mint'", name="ck_accounts_balance"),
    sa.Index("ix_accounts_owner", "owner_id"),
)

escrows = sa.Table(
    "escrows",
    metadata,
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("publisher", sa.Text, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("opened_at", Real, nullable=False),
    sa.Column("released_at", Real),
)

settlements = sa.Table(
    "settlements",
    metadata,
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", Real, nullable=False, index=True),
    sa.Column("owed", sa.BigInteger, nullable=False),
    sa.Column("paid", sa.BigInteger, nullable=False),
    sa.Column("escrow", sa.BigInteger, nullable=False),
    # SHA-256 of the delivered work; a repeat must bring the same.
    sa.Column("digest", sa.Text, nullable=False),
)

payments = sa.Table(
    "payments",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", Real, nullable=False, index=True),
    sa.Column("task_id", Id, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("device_id", Id, nullable=False),
    sa.Column("owner_id", Id, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("price", sa.BigInteger, nullable=False),
    sa.Column("budget", Real, nullable=False),
    sa.Column("quality", Real, nullable=False),
    sa.Column("because", sa.Text, nullable=False),
    sa.Column(
        "entry",
        sa.BigInteger,
        sa.ForeignKey("entries.number", deferrable=True, initially="DEFERRED"),
        nullable=False,
    ),
    sa.CheckConstraint("amount > 0"),
    sa.UniqueConstraint("task_id", "round", "device_id"),
    sa.Index("ix_payments_task", "task_id", "number"),
    sa.Index("ix_payments_device", "device_id", "number"),
    sa.Index("ix_payments_owner", "owner_id", "number"),
    sa.Index("ix_payments_entry", "entry", "number"),
)

quotes = sa.Table(
    "quotes",
    metadata,
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("incentive", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    # Micro-credits divided by quality, in addition to the offers.
    sa.Column("pot", sa.BigInteger, nullable=False),
    sa.Column("offers", sa.Text, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("at", Real, nullable=False),
)

privacy_charges = sa.Table(
    "privacy_charges",
    metadata,
    sa.Column("device_id", Id, primary_key=True),
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("mechanism", sa.Text, nullable=False),
    sa.Column("parameter", Real, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("sampling_rate", Real, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    # Empty = not given.
    sa.Column("adjacency", sa.Text, nullable=False, server_default=""),
    sqlite_with_rowid=False,
)

# Sums of charges of one kind (domain/ledger_privacy.py), so that a report does not read the history.
privacy_totals = sa.Table(
    "privacy_totals",
    metadata,
    sa.Column("device_id", Id, primary_key=True),
    sa.Column("task_id", Id, primary_key=True),
    sa.Column("unit", sa.Text, primary_key=True),
    sa.Column("adjacency", sa.Text, primary_key=True),
    sa.Column("mechanism", sa.Text, primary_key=True),
    sa.Column("parameter", Real, primary_key=True),
    sa.Column("sampling_rate", Real, primary_key=True),
    sa.Column("amount", Real, nullable=False),
    sqlite_with_rowid=False,
)
