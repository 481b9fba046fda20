"""Retention: what each device did in each round of tasks that ended long ago is forgotten when an admin says so."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from services.aggregation.errors import UnknownTask
from services.aggregation.store import models, pruning, tasks
from services.kit.database.blobs import BlobStore
from services.kit.database.engine import Database
from services.kit.database.rows import batches
from services.kit.errors import InvalidInput
from services.kit.observability.logs import get_logger
from services.kit.rpc.principal import require_role
from services.kit.runtime.clock import Clock

LEAST_AGE_SECONDS = 3600.0
"""Evaluators and devices may still ask about a task that has just ended."""
_log = get_logger()


class BadRetention(InvalidInput):
    """Tasks that ended so lately may still be asked about."""


class _OnlyLookedError(Exception):
    """Takes back what a look has tried."""


@dataclass(slots=True)
class Pruned:
    """What went, or would go."""

    tasks: int = 0
    participations: int = 0
    events: int = 0
    others: int = 0
    blobs: int = 0


@dataclass(frozen=True, slots=True)
class Pruner:
    """Forgets, one task a transaction: stopped in the middle, the rest goes the next time."""

    database: Database
    blobs: BlobStore
    clock: Clock

    async def prune(self, older_than_seconds: float, task_id: str, *, dry_run: bool) -> Pruned:
        """Tasks that ended longer ago than that; one that runs, or whose escrow is held, is never touched."""
        require_role("admin")
        if not older_than_seconds >= LEAST_AGE_SECONDS:
            raise BadRetention(
                f"only tasks that ended at least {LEAST_AGE_SECONDS:g} seconds ago may be pruned, not "
                f"{older_than_seconds:g}: they may still be asked about"
            )
        async with self.database.reading(offload=True) as tx:
            if task_id and await tasks.find_task(tx, task_id) is None:
                raise UnknownTask(f"no task {task_id}")
            ended = await pruning.ended_before(tx, self.clock.now() - older_than_seconds, task_id)
        result = Pruned()
        for item in ended:
            await self._prune(item, result, dry_run=dry_run)
        if not dry_run and result.tasks:
            await self.database.vacuum()
            _log.info("tasks pruned", tasks=result.tasks, participations=result.participations, blobs=result.blobs)
        return result

    async def _prune(self, task_id: str, listed: Pruned, *, dry_run: bool) -> None:
        unused: set[str] = set()
        with suppress(_OnlyLookedError):
            async with self.database.writing(offload=True) as tx:
                rows, digests = await pruning.count(tx, task_id), await pruning.blobs(tx, task_id)
                await pruning.forget(tx, task_id)
                for some in batches(sorted(digests)):
                    unused |= set(some) - await models.digests_in_use(tx, some)
                if dry_run:
                    raise _OnlyLookedError  # and nothing is forgotten
        if not any(rows.values()):
            return
        if not dry_run:
            await self.blobs.delete_all(unused)
        listed.tasks += 1
        listed.participations += rows["participations"]
        listed.events += rows["events"]
        listed.others += rows["others"]
        listed.blobs += len(unused)
