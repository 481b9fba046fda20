"""The migrations make exactly the tables the code expects."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from services.kit.database import Database
from services.trust.tables import metadata


def differences(connection: sa.Connection) -> list[object]:
    context = MigrationContext.configure(connection, opts={"compare_type": False})
    return list(compare_metadata(context, metadata))


async def test_migrations_and_tables_agree(tmp_path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'trust.db'}", "trust")
    await database.migrate("services.trust")
    async with database.reading() as connection:
        assert await connection.run_sync(differences) == []
    await database.close()
