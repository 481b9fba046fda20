"""Models and letters as blobs: who may store and who may read them."""

from __future__ import annotations

import asyncio

from services.aggregation.domain.layout import Layout
from services.aggregation.errors import QuotaSpent, UnknownLetter
from services.aggregation.store import models, tasks
from services.aggregation.store.model_files import ModelFiles
from services.kit.database.blobs import UnknownBlob, check_digest
from services.kit.database.engine import Database
from services.kit.errors import InvalidInput
from services.kit.rpc.principal import current_principal, require_role
from services.kit.runtime.clock import Clock


class ModelUseCases:
    """What may be asked about stored models."""

    def __init__(self, database: Database, model_files: ModelFiles, clock: Clock, quota_bytes: int) -> None:
        self._database, self._model_files, self._clock = database, model_files, clock
        self._quota = quota_bytes

    async def register(self, digest: str) -> tuple[int, Layout]:
        """Takes a stored blob for a model, if it is a sound safetensors file; its size and layout."""
        caller = require_role("publisher", "admin")
        size = await self._model_files.blobs.size(check_digest(digest))
        try:
            layout = await asyncio.to_thread(self._model_files.layout, digest, size)
            await asyncio.to_thread(self._model_files.check_finite, digest, layout)
            async with self._database.writing() as tx:
                await models.add_upload(tx, digest, caller.subject, size, self._clock.now())
                self._check_quota(await models.uploaded_bytes(tx, caller.subject))
        except (InvalidInput, QuotaSpent):
            await self._drop(digest)
            raise
        return size, layout

    async def admit(self, size_bytes: int) -> int:
        """Largest model the caller may store now; raises when it is this one or any."""
        caller = require_role("publisher", "admin")
        async with self._database.reading() as tx:
            stored = await models.uploaded_bytes(tx, caller.subject)
        self._check_quota(stored + max(size_bytes, 1))
        return self._quota - stored

    async def forget(self, digest: str) -> None:
        """The caller no longer keeps this model. A task that learns from it keeps it as its own."""
        caller = require_role("publisher", "admin")
        async with self._database.writing() as tx:
            known = await models.remove_upload(tx, check_digest(digest), caller.subject)
        if not known:
            raise UnknownBlob(f"you uploaded no model {digest[:16]}…")
        await self._drop(digest)

    async def _drop(self, digest: str) -> None:
        async with self._database.reading() as tx:
            needed = await models.digests_in_use(tx, [digest])
        if not needed:
            await self._model_files.blobs.delete(digest)

    def _check_quota(self, wanted: int) -> None:
        if wanted > self._quota:
            raise QuotaSpent(
                f"your models would have {wanted} bytes, at most {self._quota} are kept; forget one that you uploaded "
                "(DELETE /v1/models/{digest}), or ask for a higher COTERIE_PUBLISHER_QUOTA_BYTES",
                details={"limit_bytes": str(self._quota)},
            )

    async def authorise_download(self, digest: str) -> tuple[str, int]:
        """Digest and size of a model the caller may read: an enrolled device, its publisher, an admin."""
        caller = require_role("publisher", "device", "admin")
        async with self._database.reading() as tx:
            publisher = caller.subject if caller.role == "publisher" else ""
            size = await models.find_size(tx, check_digest(digest), of=publisher)
            if caller.role == "device" and not await tasks.is_enrolled_for_digest(tx, caller.subject, digest):
                size = None
        if size is None:
            raise UnknownBlob(f"no model {digest[:16]}… that you may read")
        return digest, size

    async def authorise_letter(self, letter_id: str) -> tuple[str, int]:
        """Digest and size of a letter; only its recipient may read it."""
        caller = current_principal()
        async with self._database.reading() as tx:
            letter = await models.find_letter(tx, letter_id)
        if letter is None or caller.subject != letter.recipient:
            raise UnknownLetter(f"no letter {letter_id} for you")
        return letter.digest, letter.size_bytes
