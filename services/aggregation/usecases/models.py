"""Models and letters as blobs: who may store and who may read them."""

from __future__ import annotations

import asyncio

from services.aggregation.domain.layout import Layout
from services.aggregation.errors import UnknownLetter
from services.aggregation.store import models, tasks
from services.aggregation.store.library import Library
from services.kit.blobs import UnknownBlob, check_digest
from services.kit.caller import current_caller, require_role
from services.kit.clock import Clock
from services.kit.database import Database


class ModelUseCases:
    """What may be asked about stored models."""

    def __init__(self, database: Database, library: Library, clock: Clock) -> None:
        self._database, self._library, self._clock = database, library, clock

    async def register(self, digest: str) -> tuple[int, Layout]:
        """Takes a stored blob for a model, if it is a sound safetensors file; its size and layout."""
        caller = require_role("publisher", "admin")
        size = await self._library.blobs.size(check_digest(digest))
        layout = await asyncio.to_thread(self._library.layout, digest, size)
        async with self._database.writing() as tx:
            await models.add_upload(tx, digest, caller.subject, size, self._clock.now())
        return size, layout

    async def authorise_download(self, digest: str) -> tuple[str, int]:
        """Digest and size of a model the caller may read: an enrolled device, its publisher, an admin."""
        caller = current_caller()
        async with self._database.reading() as tx:
            found = await models.find_model(tx, check_digest(digest))
            size = found.size_bytes if found is not None else await models.find_upload(tx, digest)
            if caller.role == "device":
                allowed = await tasks.is_enrolled_for_digest(tx, caller.subject, digest)
            elif caller.role == "publisher":
                allowed = await models.publishes_digest(tx, caller.subject, digest)
            else:
                allowed = True
        if size is None or not allowed:
            raise UnknownBlob(f"no model {digest[:16]}… that you may read")
        return digest, size

    async def authorise_letter(self, letter_id: str) -> tuple[str, int]:
        """Digest and size of a letter; only its recipient may read it."""
        caller = current_caller()
        async with self._database.reading() as tx:
            letter = await models.find_letter(tx, letter_id)
        if letter is None or caller.subject != letter.recipient:
            raise UnknownLetter(f"no letter {letter_id} for you")
        return letter.digest, letter.size_bytes
