"""Notify the other replicas of a service with PostgreSQL's LISTEN and NOTIFY.

SQLite has one process, whose own notifier is enough. The notification is part of the transaction that made the change:
replicas receive it after the change is visible, and never without it. While the listening connection is lost nothing
arrives; after reconnecting, every subscription is woken to re-check its state.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import sqlalchemy as sa

from services.kit.database.engine import Database
from services.kit.database.rows import Tx
from services.kit.notify.notifier import Notifier
from services.kit.observability.logs import get_logger

if TYPE_CHECKING:
    import asyncpg

RECONNECT_SECONDS = 1.0
CHECK_SECONDS = 15.0
"""Interval between checks of the listening connection."""
CONNECT_SECONDS = 5.0
_log = get_logger()


class ReplicaNotifier:
    """Sends notifications of one service to its other replicas, and notifies subscribers here of theirs.

    Keys that begin with `noted` are also collected for `take`, for a reader that polls.
    """

    def __init__(self, database: Database, notifier: Notifier, noted: str = "") -> None:
        self._database, self._notifier, self._prefix = database, notifier, noted
        self._channel = f"{database.schema}_notifier"
        self._listening: asyncio.Task[None] | None = None
        self.heard = asyncio.Event()
        """Set while notifications of other replicas are received."""
        self._noted: set[str] = set()

    async def start(self) -> None:
        """Start listening, unless SQLite rules out other replicas."""
        if not self._database.is_sqlite:
            self._listening = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def carry(self, tx: Tx, *keys: str) -> None:
        """Notify other replicas when the transaction commits; the caller notifies this replica's subscribers itself."""
        if not self._database.is_sqlite:
            for key in keys:
                await tx.execute(sa.select(sa.func.pg_notify(self._channel, key)))

    def take(self) -> set[str]:
        """Return and forget the `noted` keys received since the last call, those of this replica included."""
        result, self._noted = self._noted, set()
        return result

    def _receive(self, key: str) -> None:
        if self._prefix and key.startswith(self._prefix):
            self._noted.add(key.removeprefix(self._prefix))
        self._notifier.notify(key)

    async def _listen(self) -> None:
        import asyncpg  # not needed on SQLite

        address = self._database.url.replace("+asyncpg", "", 1)
        while True:
            try:
                connection = await asyncpg.connect(address, timeout=CONNECT_SECONDS)
                try:
                    await self._stay(connection)
                finally:
                    self.heard.clear()
                    connection.terminate()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _log.warning("LISTEN connection lost; reconnecting", error=str(error))
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _stay(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._channel, lambda _, __, ___, key: self._receive(str(key)))
        self.heard.set()
        self._notifier.notify_all()  # notifications may have been lost while disconnected
        while not lost.is_set():
            try:
                await asyncio.wait_for(lost.wait(), CHECK_SECONDS)
            except TimeoutError:
                await connection.execute("SELECT 1", timeout=CONNECT_SECONDS)
