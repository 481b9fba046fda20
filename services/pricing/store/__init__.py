"""Stores of the pricing engine: each works inside the caller's transaction and never commits.

The contract is the same on SQLite and PostgreSQL; the tests run every store on both.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from services.kit.rows import Tx


def inserting(tx: Tx, table: sa.Table) -> Any:
    """An INSERT into `table` that knows ON CONFLICT, which both databases spell alike but SQLAlchemy types apart."""
    return sqlite.insert(table) if tx.dialect.name == "sqlite" else postgresql.insert(table)
