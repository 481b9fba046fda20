"""Connections to PostgreSQL, where each service has its own schema, and the transactions on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from services.kit.database.transactions import Result, Row, Transaction, Values, translated_errors

T = TypeVar("T")
_MIGRATION_LOCK = 0x636F746572  # "coter": advisory lock held while tables change


class PostgresConnections:
    """The pool of connections to one schema."""

    def __init__(self, url: str, schema: str) -> None:
        self._schema = schema
        self._engine = create_async_engine(
            url,
            pool_size=8,
            max_overflow=8,
            pool_pre_ping=True,
            pool_timeout=10,
            connect_args={"server_settings": {"search_path": schema}, "timeout": 5, "command_timeout": 60},
        )

    @property
    def engine(self) -> sa.Engine:
        return self._engine.sync_engine

    @asynccontextmanager
    async def reading(self, *, offload: bool, snapshot: bool) -> AsyncIterator[Transaction]:
        with translated_errors():
            async with self._engine.connect() as connection:
                if snapshot:
                    await connection.execution_options(isolation_level="REPEATABLE READ")
                yield PostgresTransaction(connection)

    @asynccontextmanager
    async def writing(self, *, offload: bool) -> AsyncIterator[Transaction]:
        with translated_errors():
            async with self._engine.begin() as connection:
                transaction = PostgresTransaction(connection)
                yield transaction
            transaction.run_actions()

    async def change_tables(self, change: Callable[[sa.Connection], None]) -> None:
        with translated_errors():
            async with self._migration_lock(), self._engine.begin() as connection:
                await connection.run_sync(change)

    @asynccontextmanager
    async def _migration_lock(self) -> AsyncIterator[None]:
        async with self._engine.connect() as connection:
            await connection.execute(sa.text("SELECT pg_advisory_lock(:key)"), {"key": _MIGRATION_LOCK})
            try:
                # A database user that owns only this schema may not create one, not even with IF NOT EXISTS.
                query = sa.text("SELECT to_regnamespace(:name)")
                if (await connection.execute(query, {"name": self._schema})).scalar_one() is None:
                    await connection.execute(sa.schema.CreateSchema(self._schema, if_not_exists=True))
                await connection.commit()
                yield
            finally:
                await connection.execute(sa.text("SELECT pg_advisory_unlock(:key)"), {"key": _MIGRATION_LOCK})
                await connection.commit()

    async def vacuum(self) -> None:
        """Do nothing: PostgreSQL reuses the space of deleted rows by itself."""

    async def close(self) -> None:
        await self._engine.dispose()


class PostgresTransaction(Transaction):
    """A transaction on an asynchronous connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection.dialect)
        self._connection = connection

    async def execute(self, statement: sa.Executable, values: Values = None) -> Result:
        return await self._connection.execute(statement, values)

    async def exec_driver_sql(self, text: str, values: Any = None) -> Result:
        return await self._connection.exec_driver_sql(text, values)

    async def partitions(self, query: sa.Select[Any], size: int) -> AsyncIterator[Sequence[Row]]:
        result = await self._connection.stream(query)
        try:
            async for rows in result.partitions(size):
                yield rows
        finally:
            await result.close()

    async def run_sync(self, function: Callable[[sa.Connection], T]) -> T:
        return await self._connection.run_sync(function)
