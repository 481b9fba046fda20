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

AGAIN_SECONDS = 1.0
CHECK_SECONDS = 15.0
"""How often the listening connection is asked whether it still lives."""
CONNECT_SECONDS = 5.0
_log = get_logger()


class ReplicaNotifier:
    """Carries rings of one service's notifier to its other replicas, and rings what they carry here.

    Keys that begin with `noted` are also kept until they are taken, for whoever looks now and then.
    """

    def __init__(self, database: Database, notifier: Notifier, noted: str = "") -> None:
        self._database, self._notifier, self._prefix = database, notifier, noted
        self._channel = f"{database.schema}_notifier"
        self._listening: asyncio.Task[None] | None = None
        self.heard = asyncio.Event()
        """Set while rings of other replicas are heard."""
        self._noted: set[str] = set()

    async def start(self) -> None:
        """Listens from now on, where there may be other replicas."""
        if not self._database.is_sqlite:
            self._listening = asyncio.create_task(self._listen())

    async def stop(self) -> None:
        """Listens no more."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def carry(self, tx: Tx, *keys: str) -> None:
        """Rings these on every replica once the transaction has committed; here the caller rings them itself."""
        if not self._database.is_sqlite:
            for key in keys:
                await tx.execute(sa.select(sa.func.pg_notify(self._channel, key)))

    def take(self) -> set[str]:
        """What is noted of the keys carried, by other replicas or this one, since they were last taken."""
        result, self._noted = self._noted, set()
        return result

    def _hear(self, key: str) -> None:
        if self._prefix and key.startswith(self._prefix):
            self._noted.add(key.removeprefix(self._prefix))
        self._notifier.notify(key)

    async def _listen(self) -> None:
        import asyncpg  # which a service on SQLite does without

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
                _log.warning("rings of other replicas are not heard; listening again soon", why=str(error))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _stay(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(self._channel, lambda _, __, ___, key: self._hear(str(key)))
        self.heard.set()
        self._notifier.notify_all()  # for what was rung while nobody listened
        while not lost.is_set():
            try:
                await asyncio.wait_for(lost.wait(), CHECK_SECONDS)
            except TimeoutError:
                await connection.execute("SELECT 1", timeout=CONNECT_SECONDS)
