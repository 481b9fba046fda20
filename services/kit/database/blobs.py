"""Blobs: models, updates and letters under their SHA-256, in a folder or any object store that `obstore` supports.

A blob is written under a staging name while it is hashed, and renamed when it is complete and has the promised digest.
Readers therefore never see a partial blob, and writing the same blob twice changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore, from_url

from services.kit.errors import InvalidInput, NotFound, TooLarge, Unavailable
from services.kit.runtime.batcher import Batcher
from services.kit.runtime.settings import ServiceSettings

CHUNK_BYTES = 1 << 20
_BUFFER_BYTES = 8 << 20
"""Part size of large uploads. S3 accepts parts from 5 MiB; only the last may be smaller."""
_STAGING = "staging"
FILES_PER_THREAD = 256
_LISTED_AT_ONCE = 500
_DELETED_AT_ONCE = 500
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


class UnknownBlob(NotFound):
    """No blob has that digest."""


class BadDigest(InvalidInput):
    """The text is not a hexadecimal SHA-256."""


class DigestMismatch(InvalidInput):
    """The received bytes do not have the promised digest."""


class BlobTooLarge(TooLarge):
    """The body exceeds the size limit."""


class StorageAway(Unavailable):
    """The blob store is full or unreachable."""


def check_digest(digest: str) -> str:
    """Return `digest` if it is 64 lower-case hexadecimal digits; raise `BadDigest` otherwise."""
    if not _DIGEST.match(digest):
        raise BadDigest(f"{digest[:80]!r} is not a SHA-256: give 64 lower-case hexadecimal digits")
    return digest


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """An object in the store. name: its digest, or the staging name of an upload that may still be running."""

    name: str
    size_bytes: int
    stored_at: float

    @property
    def is_whole(self) -> bool:
        """Whether this is a complete blob and not an unfinished upload."""
        return _DIGEST.match(self.name) is not None


class BlobStore:
    """Content-addressed bytes."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder
        self._files = Batcher(partial(_write_files, folder), size=FILES_PER_THREAD) if folder is not None else None

    @classmethod
    def from_settings(cls, settings: ServiceSettings) -> BlobStore:
        """Open the store that the settings name."""
        place = urlsplit(settings.blob_url)
        if place.scheme == "file":  # reads of a folder bypass obstore
            return cls.in_folder(Path(unquote(place.path)))
        if settings.blob_url:
            return cls(from_url(settings.blob_url))
        return cls.in_folder(settings.data_dir / "blobs")

    @classmethod
    def in_folder(cls, folder: Path) -> BlobStore:
        """Open a store in a local folder; create the folder if needed."""
        return cls(LocalStore(prefix=folder.resolve(), mkdir=True), folder.resolve())

    async def put(self, chunks: AsyncIterator[bytes], *, max_bytes: int, digest: str = "") -> tuple[str, int]:
        """Store a stream; return its digest and size. Raise `DigestMismatch` if it does not have a given `digest`."""
        staging = f"{_STAGING}/{secrets.token_hex(16)}"
        hasher, size = hashlib.sha256(), 0
        try:
            with _translated(staging):
                writer = obstore.open_writer_async(self._store, staging, buffer_size=_BUFFER_BYTES, max_concurrency=1)
                async for chunk in chunks:
                    size += len(chunk)
                    if size > max_bytes:
                        raise BlobTooLarge(f"the body exceeds {max_bytes} bytes, the limit; send a smaller one")
                    hasher.update(chunk)
                    await writer.write(chunk)
                await writer.close()
                result = hasher.hexdigest()
                if digest and result != digest:
                    raise DigestMismatch(
                        f"the body has SHA-256 {result}, not the promised {digest}: truncated or changed; send it again"
                    )
                await obstore.rename_async(self._store, staging, _path(result), overwrite=True)
        except BaseException:
            await self._discard(staging)
            raise
        return result, size

    async def put_bytes(self, data: bytes) -> str:
        """Store a small blob; return its digest."""
        digest = hashlib.sha256(data).hexdigest()
        with _translated(digest):
            if self._files is not None:
                await self._files.add((_path(digest), data))
            else:
                await obstore.put_async(self._store, _path(digest), data)
        return digest

    def put_pieces(self, pieces: Iterator[bytes]) -> tuple[str, int]:
        """Store the bytes of an iterator, from a worker thread; return their digest and size."""
        begun, is_complete = _up_to(pieces, _BUFFER_BYTES)
        if is_complete:  # one request; a staging name costs three
            digest = hashlib.sha256(begun).hexdigest()
            with _translated(digest):
                obstore.put(self._store, _path(digest), begun)
            return digest, len(begun)
        staging = f"{_STAGING}/{secrets.token_hex(16)}"
        hasher, size = hashlib.sha256(), 0
        with _translated(staging):
            with obstore.open_writer(self._store, staging, buffer_size=_BUFFER_BYTES, max_concurrency=1) as writer:
                for piece in chain((begun,), pieces):
                    hasher.update(piece)
                    size += len(piece)
                    writer.write(piece)
            digest = hasher.hexdigest()
            obstore.rename(self._store, staging, _path(digest), overwrite=True)
        return digest, size

    async def size(self, digest: str) -> int:
        """Return the size of a blob in bytes."""
        with _translated(digest):
            return (await obstore.head_async(self._store, _path(digest)))["size"]

    async def stream(self, digest: str) -> AsyncIterator[bytes]:
        """Yield the bytes of a blob in pieces."""
        with _translated(digest):
            result = await obstore.get_async(self._store, _path(digest))
            async for piece in result.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(piece)

    @property
    def is_near(self) -> bool:
        """Whether reads take microseconds, so that fetching ahead gains nothing."""
        return self._folder is not None

    async def fetch(self, digest: str, length: int) -> memoryview:
        """Return the first `length` bytes of a blob without a thread, so that many reads can run concurrently."""
        with _translated(digest):
            return memoryview(await obstore.get_range_async(self._store, _path(digest), start=0, length=length))

    def read(self, digest: str, start: int, length: int) -> memoryview:
        """Return part of a blob; call from a worker thread."""
        with _translated(digest):
            if self._folder is None:
                return memoryview(obstore.get_range(self._store, _path(digest), start=start, length=length))
            # A local file is read directly: the store's own threads would cost more than the copy.
            with open(f"{self._folder}/{_path(digest)}", "rb", buffering=0) as file:  # noqa: PTH123 - twice as fast
                file.seek(start)
                return memoryview(file.read(length))

    async def delete(self, digest: str) -> None:
        """Delete a blob if it exists."""
        try:
            with _translated(digest):
                await obstore.delete_async(self._store, _path(digest))
        except UnknownBlob:
            return

    async def delete_all(self, digests: Iterable[str]) -> None:
        """Delete many blobs; an object store needs one request per 500."""
        paths = [_path(digest) for digest in digests]
        if self._folder is not None:
            with _translated("files"):
                await asyncio.to_thread(_unlink, [self._folder / path for path in paths])
            return
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            some = paths[start : start + _DELETED_AT_ONCE]
            try:
                with _translated("blobs"):
                    await obstore.delete_async(self._store, some)
            except UnknownBlob:  # some stores stop at the first missing blob
                await asyncio.gather(*(self.delete(path.rpartition("/")[2]) for path in some))

    async def every(self) -> AsyncIterator[list[StoredBlob]]:
        """Yield pages of all stored objects, unfinished uploads included."""
        with _translated("list"):
            async for page in obstore.list(self._store, chunk_size=_LISTED_AT_ONCE):
                yield [_listed(meta["path"], meta["size"], meta["last_modified"].timestamp()) for meta in page]
        if self._folder is not None:
            # obstore hides unfinished files of a folder, also those of a writer that was killed.
            for file in await asyncio.to_thread(_hidden, self._folder):
                yield [file]

    async def remove(self, blob: StoredBlob, *, unless_after: float) -> bool:
        """Delete a listed object unless it was stored again since; return whether it was deleted."""
        path = _path(blob.name) if blob.is_whole else blob.name
        try:
            with _translated(blob.name):
                if self._folder is not None and not blob.is_whole:
                    (self._folder / path).unlink()
                    return True
                if (await obstore.head_async(self._store, path))["last_modified"].timestamp() > unless_after:
                    return False
                await obstore.delete_async(self._store, path)
        except UnknownBlob:
            return False
        return True

    async def _discard(self, staging: str) -> None:
        try:
            await obstore.delete_async(self._store, staging)
        except (BaseError, OSError):
            return  # nothing was written, or the store is unreachable; staging names are never read


async def _write_files(folder: Path, files: Sequence[tuple[str, bytes]]) -> list[Exception | None]:
    """Write a batch of small files on one thread, instead of one thread per file."""
    return await asyncio.to_thread(lambda: [_write_file(folder, path, data) for path, data in files])


def _write_file(folder: Path, path: str, data: bytes) -> OSError | None:
    # One staging folder: file systems allocate near the folder, and the 256 final folders lie far apart.
    staged, final = folder / _STAGING / secrets.token_hex(16), folder / path
    try:
        try:
            staged.write_bytes(data)
            staged.replace(final)
        except FileNotFoundError:
            for parent in (staged.parent, final.parent):
                parent.mkdir(parents=True, exist_ok=True)
            staged.write_bytes(data)
            staged.replace(final)
    except OSError as error:
        staged.unlink(missing_ok=True)  # a partial file, on a full disk
        return error
    return None


def _up_to(pieces: Iterator[bytes], most: int) -> tuple[bytes, bool]:
    """Join pieces until they exceed `most` bytes; return them and whether they are all."""
    begun = bytearray()
    for piece in pieces:
        begun += piece
        if len(begun) > most:
            return bytes(begun), False
    return bytes(begun), True


def _unlink(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _listed(path: str, size: int, stored_at: float) -> StoredBlob:
    """Describe a listed path; any path but `ab/<digest>` is its own name."""
    folder, _, name = path.rpartition("/")
    return StoredBlob(name if _DIGEST.match(name) and folder == name[:2] else path, size, stored_at)


def _hidden(folder: Path) -> list[StoredBlob]:
    result = []
    for file in folder.glob("*/*#*"):
        try:
            status = file.stat()
        except FileNotFoundError:  # the upload finished meanwhile
            continue
        result.append(StoredBlob(str(file.relative_to(folder)), status.st_size, status.st_mtime))
    return result


def _path(digest: str) -> str:
    return f"{digest[:2]}/{check_digest(digest)}"


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except (NotFoundError, FileNotFoundError) as error:
        raise UnknownBlob(f"no blob {name} is stored; upload it first") from error
    except (BaseError, OSError) as error:
        raise StorageAway("the blob store is full or unreachable; try again later") from error
