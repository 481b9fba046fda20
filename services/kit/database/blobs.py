"""Blobs: models, updates and letters under their SHA-256, in a folder or any object store `obstore` speaks to.

A blob is written to a staging name while it is hashed and moved to its address only when it is whole and its digest is
the one promised, so a half-written blob is never seen and writing the same one twice changes nothing.
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
"""What a large blob is sent in. S3 takes no part under 5 MiB, the last one excepted."""
_STAGING = "staging"
FILES_PER_THREAD = 256
_LISTED_AT_ONCE = 500
_DELETED_AT_ONCE = 500
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


class UnknownBlob(NotFound):
    """Nothing is stored under that digest."""


class BadDigest(InvalidInput):
    """Not the hexadecimal form of a SHA-256."""


class DigestMismatch(InvalidInput):
    """The bytes that came are not the bytes that were promised."""


class BlobTooLarge(TooLarge):
    """More bytes came than are taken."""


class StorageAway(Unavailable):
    """The blob store does not take or give bytes now: it is full, or out of reach."""


def check_digest(digest: str) -> str:
    """`digest` itself, if it is 64 lower-case hexadecimal digits."""
    if not _DIGEST.match(digest):
        raise BadDigest(f"{digest[:80]!r} is not a SHA-256: give 64 lower-case hexadecimal digits")
    return digest


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """One thing in the store. name: its digest, or the staging name of an upload that may still be running."""

    name: str
    size_bytes: int
    stored_at: float

    @property
    def is_whole(self) -> bool:
        """Whether it is a blob, and not what an upload has written so far."""
        return _DIGEST.match(self.name) is not None


class BlobStore:
    """Content-addressed bytes."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder
        self._files = Batcher(partial(_write_files, folder), size=FILES_PER_THREAD) if folder is not None else None

    @classmethod
    def from_settings(cls, settings: ServiceSettings) -> BlobStore:
        """The store that the settings name."""
        place = urlsplit(settings.blob_url)
        if place.scheme == "file":  # a folder as any other, and read as fast
            return cls.in_folder(Path(unquote(place.path)))
        if settings.blob_url:
            return cls(from_url(settings.blob_url))
        return cls.in_folder(settings.data_dir / "blobs")

    @classmethod
    def in_folder(cls, folder: Path) -> BlobStore:
        """A store in a local folder, made if need be."""
        return cls(LocalStore(prefix=folder.resolve(), mkdir=True), folder.resolve())

    async def put(self, chunks: AsyncIterator[bytes], *, max_bytes: int, digest: str = "") -> tuple[str, int]:
        """Stores a stream; returns its digest and size. With `digest` given, the bytes must have that one."""
        staging = f"{_STAGING}/{secrets.token_hex(16)}"
        hasher, size = hashlib.sha256(), 0
        try:
            with _translated(staging):
                writer = obstore.open_writer_async(self._store, staging, buffer_size=_BUFFER_BYTES, max_concurrency=1)
                async for chunk in chunks:
                    size += len(chunk)
                    if size > max_bytes:
                        raise BlobTooLarge(f"the body passes {max_bytes} bytes, the most that is taken here")
                    hasher.update(chunk)
                    await writer.write(chunk)
                await writer.close()
                result = hasher.hexdigest()
                if digest and result != digest:
                    raise DigestMismatch(
                        f"the body has SHA-256 {result}, not {digest} as promised: cut short or changed; send it again"
                    )
                await obstore.rename_async(self._store, staging, _path(result), overwrite=True)
        except BaseException:
            await self._discard(staging)
            raise
        return result, size

    async def put_bytes(self, data: bytes) -> str:
        """Stores a small blob; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        with _translated(digest):
            if self._files is not None:
                await self._files.add((_path(digest), data))
            else:
                await obstore.put_async(self._store, _path(digest), data)
        return digest

    def put_pieces(self, pieces: Iterator[bytes]) -> tuple[str, int]:
        """Stores what an iterator yields, from a worker thread; returns its digest and size."""
        begun, whole = _up_to(pieces, _BUFFER_BYTES)
        if whole:  # one request, where a staging name costs three
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
        """How many bytes a blob has."""
        with _translated(digest):
            return (await obstore.head_async(self._store, _path(digest)))["size"]

    async def stream(self, digest: str) -> AsyncIterator[bytes]:
        """A blob's bytes, piece by piece."""
        with _translated(digest):
            result = await obstore.get_async(self._store, _path(digest))
            async for piece in result.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(piece)

    @property
    def is_near(self) -> bool:
        """Whether reading is a matter of microseconds, so that fetching ahead gains nothing."""
        return self._folder is not None

    async def fetch(self, digest: str, length: int) -> memoryview:
        """The first `length` bytes of a blob, without a thread: many are under way at a time."""
        with _translated(digest):
            return memoryview(await obstore.get_range_async(self._store, _path(digest), start=0, length=length))

    def read(self, digest: str, start: int, length: int) -> memoryview:
        """Part of a blob, read from a worker thread."""
        with _translated(digest):
            if self._folder is None:
                return memoryview(obstore.get_range(self._store, _path(digest), start=start, length=length))
            # A file next door is read here and now: the store's own threads would cost more than the copy.
            with open(f"{self._folder}/{_path(digest)}", "rb", buffering=0) as file:  # noqa: PTH123 - twice as fast
                file.seek(start)
                return memoryview(file.read(length))

    async def delete(self, digest: str) -> None:
        """Forgets a blob; one that is not there is forgotten already."""
        try:
            with _translated(digest):
                await obstore.delete_async(self._store, _path(digest))
        except UnknownBlob:
            return

    async def delete_all(self, digests: Iterable[str]) -> None:
        """Forgets many blobs: at a far store a few requests, however many there are."""
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
            except UnknownBlob:  # some stores stop at the first that is not there
                await asyncio.gather(*(self.delete(path.rpartition("/")[2]) for path in some))

    async def every(self) -> AsyncIterator[list[StoredBlob]]:
        """Everything stored, page by page, unfinished uploads included."""
        with _translated("list"):
            async for page in obstore.list(self._store, chunk_size=_LISTED_AT_ONCE):
                yield [_listed(meta["path"], meta["size"], meta["last_modified"].timestamp()) for meta in page]
        if self._folder is not None:
            # A folder's store hides what it writes until it is whole, also when the writer was killed.
            for file in await asyncio.to_thread(_hidden, self._folder):
                yield [file]

    async def remove(self, blob: StoredBlob, *, unless_after: float) -> bool:
        """Removes what was listed, unless it was stored again since; whether it is gone."""
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
            return  # nothing was written under that name, or the store is away: staging names are never read


async def _write_files(folder: Path, files: Sequence[tuple[str, bytes]]) -> list[Exception | None]:
    """Write small files with one thread: a thousand devices that deliver together would need a thousand."""
    return await asyncio.to_thread(lambda: [_write_file(folder, path, data) for path, data in files])


def _write_file(folder: Path, path: str, data: bytes) -> OSError | None:
    # All files start in one folder: a file system allocates near the folder, and the 256 final ones lie far apart.
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
        staged.unlink(missing_ok=True)  # half of it, on a full disk
        return error
    return None


def _up_to(pieces: Iterator[bytes], most: int) -> tuple[bytes, bool]:
    """The first pieces together, until they are more than `most` bytes, and whether these are all."""
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
    """A path as it is listed; anything but `ab/<digest>` keeps its whole path as name."""
    folder, _, name = path.rpartition("/")
    return StoredBlob(name if _DIGEST.match(name) and folder == name[:2] else path, size, stored_at)


def _hidden(folder: Path) -> list[StoredBlob]:
    result = []
    for file in folder.glob("*/*#*"):
        try:
            status = file.stat()
        except FileNotFoundError:  # finished meanwhile
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
        raise StorageAway(
            "the blob store does not take or give bytes now (full, or out of reach); try again later"
        ) from error
