"""A service's own database, SQLite or PostgreSQL, reached through transactions.

SQLite runs in WAL mode with full synchronisation. Writing transactions begin IMMEDIATE and queue in this process, so
they never meet `database is locked`; reading transactions see a snapshot and never wait. On PostgreSQL each service has
a separate schema in one database, and the same two kinds of transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import alembic.command
import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from services.kit.database.postgres import PostgresConnections
from services.kit.database.sqlite import SqliteConnections
from services.kit.database.transactions import Connections, DatabaseAway, Transaction

__all__ = ["Database", "DatabaseAway", "Transaction", "migrations_of"]
_SQLITE = "sqlite:///"


class Database:
    """A service's own database.

    `url` is `sqlite:///PATH` or `postgresql+asyncpg://…`; `schema` names the service and its schema on PostgreSQL.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.schema = schema
        self.is_sqlite = url.startswith(_SQLITE)
        self._connections: Connections = (
            SqliteConnections(Path(url.removeprefix(_SQLITE))) if self.is_sqlite else PostgresConnections(url, schema)
        )

    @property
    def engine(self) -> sa.Engine:
        """SQLAlchemy's engine, for its events."""
        return self._connections.engine

    def writing(self, *, offload: bool = False) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that may write: it commits when the block ends, and rolls back when it raises.

        On SQLite statements run on the event loop's thread. With `offload` they run on another one: give it to
        transactions that read or write thousands of rows.
        """
        return self._connections.writing(offload=offload)

    def reading(self, *, offload: bool = False, snapshot: bool = False) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that only reads; `offload` as for `writing`.

        With `snapshot` every statement sees the database at the same moment; on SQLite every transaction does.
        """
        return self._connections.reading(offload=offload, snapshot=snapshot)

    async def migrate(self, package: str) -> None:
        """Bring the tables to the newest version of `package`'s migrations."""
        schema = None if self.is_sqlite else self.schema
        await self.change_tables(partial(_upgrade, package=package, schema=schema))

    async def change_tables(self, change: Callable[[sa.Connection], None]) -> None:
        """Call `change` in a transaction, and in no other process at the same time; then commit."""
        await self._connections.change_tables(change)

    async def vacuum(self) -> None:
        """Return the space of deleted rows to the disk; PostgreSQL does so by itself."""
        await self._connections.vacuum()

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()


def migrations_of(package: str) -> Config:
    """Alembic's configuration for a service's migrations."""
    config = Config()
    config.set_main_option("script_location", f"{package}:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: sa.Connection, package: str, schema: str | None) -> None:
    config = migrations_of(package)
    config.attributes["connection"] = connection
    config.attributes["schema"] = schema
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    there = MigrationContext.configure(connection, opts={"version_table_schema": schema}).get_current_heads()
    if newer := set(there) - known:
        raise ValueError(
            f"the database of {package} has a newer version (revision {', '.join(sorted(newer))}) than this code; "
            "it was left unchanged: install the newer version, or restore a back-up made before the upgrade"
        )
    alembic.command.upgrade(config, "head")
