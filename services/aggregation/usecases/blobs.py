"""Blobs that nothing refers to: left by a process that died between storing bytes and noting what they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie_api.topology.v1 import topology_pb2 as topology
from services.aggregation.store import models
from services.kit.database.blobs import BlobStore, StoredBlob
from services.kit.database.engine import Database
from services.kit.errors import InvalidInput
from services.kit.observability.logs import get_logger
from services.kit.rpc.principal import require_role
from services.kit.rpc.service_clients import ServiceClients
from services.kit.runtime.clock import Clock

LEAST_AGE_SECONDS = 600.0
"""Bytes are stored moments before the row that needs them; so much longer ago means that none will come."""
MOST_NAMED = 100
_log = get_logger()


class BadAge(InvalidInput):
    """Blobs so young may still be waited for."""


@dataclass(slots=True)
class Sweep:
    """What a sweep found. names: some of the orphans."""

    seen: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    removed: int = 0
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Find and remove blobs that no row names."""

    database: Database
    clients: ServiceClients
    blobs: BlobStore
    clock: Clock

    async def sweep(self, older_than_seconds: float, *, dry_run: bool) -> Sweep:
        """Everything stored longer ago than that and needed by no task, round, letter, upload or policy."""
        require_role("admin")
        if not older_than_seconds >= LEAST_AGE_SECONDS:
            raise BadAge(
                f"only what was stored at least {LEAST_AGE_SECONDS:g} seconds ago may be swept, not "
                f"{older_than_seconds:g}: a row may still come for younger bytes"
            )
        before, result = self.clock.now() - older_than_seconds, Sweep()
        # Policies are few, so the planner tells all of theirs; a policy noted later has a blob that is young.
        retained = set((await self.clients.topology.ListBlobs(topology.ListBlobsRequest())).digests)
        async for page in self.blobs.every():
            result.seen += len(page)
            old = [blob for blob in page if blob.stored_at <= before and blob.name not in retained]
            for blob in await self._orphans(old):
                await self._take(result, blob, before, dry_run)
        if not dry_run:
            _log.info("blobs swept", seen=result.seen, removed=result.removed, bytes=result.orphan_bytes)
        return result

    async def _orphans(self, old: list[StoredBlob]) -> list[StoredBlob]:
        whole = [blob.name for blob in old if blob.is_whole]
        if not whole:
            return old
        async with self.database.reading() as tx:
            needed = await models.digests_in_use(tx, whole)
        return [blob for blob in old if blob.name not in needed]

    async def _take(self, listed: Sweep, blob: StoredBlob, before: float, dry_run: bool) -> None:
        if not dry_run and not await self.blobs.remove(blob, unless_after=before):
            return  # stored again meanwhile, so a row will name it
        listed.orphans += 1
        listed.orphan_bytes += blob.size_bytes
        listed.removed += not dry_run
        if len(listed.names) < MOST_NAMED:
            listed.names.append(blob.name)
