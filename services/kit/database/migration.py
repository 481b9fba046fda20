"""Run Alembic migrations on the connection of `Database.migrate`; every service's `migrations/env.py` calls it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context


def run(metadata: sa.MetaData) -> None:
    """Apply the migrations on the caller's connection."""
    connection = context.config.attributes["connection"]
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table_schema=context.config.attributes.get("schema"),
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()
