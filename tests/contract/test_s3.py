"""Blobs in a real S3: the same promises as in a folder, and few requests."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from services.kit.database.blobs import BlobStore, BlobTooLarge, DigestMismatch, StorageAway, StoredBlob, UnknownBlob
from services.kit.runtime.settings import ServiceSettings
from tests.contract.s3_server import S3Server, s3_server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as result:
        yield result


@pytest.fixture
def store(server: S3Server) -> BlobStore:
    return BlobStore.from_settings(ServiceSettings(blob_url=f"s3://{server.bucket}/platform"))


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def everything(store: BlobStore) -> list[StoredBlob]:
    return [blob async for page in store.every() for blob in page]


@pytest.mark.parametrize("parts", [(b"",), (b"hello ", b"world"), (b"x" * 9_000_000, b"y" * 3)])
async def test_a_stream_comes_back_whole_and_in_parts_and_leaves_nothing_else(
    store: BlobStore, parts: tuple[bytes, ...]
) -> None:
    """The last one is uploaded in several parts under a staging name and moved."""
    whole = b"".join(parts)
    digest, size = await store.put(pieces(*parts), max_bytes=20_000_000)
    assert (digest, size) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert b"".join([piece async for piece in store.stream(digest)]) == whole
    assert await store.size(digest) == size
    if whole:
        assert bytes(await asyncio.to_thread(store.read, digest, size - 4, 4)) == whole[-4:]
        assert bytes(await store.fetch(digest, 4)) == whole[:4]
    assert [(blob.name, blob.size_bytes) for blob in await everything(store)] == [(digest, size)]


async def test_what_is_not_as_promised_leaves_nothing_behind(store: BlobStore) -> None:
    with pytest.raises(DigestMismatch, match="send it again"):
        await store.put(pieces(b"abc"), max_bytes=10, digest="0" * 64)
    with pytest.raises(BlobTooLarge):
        await store.put(pieces(b"abc", b"x" * 10), max_bytes=10)
    with pytest.raises(UnknownBlob):
        await store.size("0" * 64)
    assert await everything(store) == []


async def test_many_blobs_are_forgotten_by_a_request_per_five_hundred(store: BlobStore, server: S3Server) -> None:
    retained = await store.put_bytes(b"kept")
    there = [await store.put_bytes(b"%d" % number) for number in range(20)]
    never = [hashlib.sha256(b"never %d" % number).hexdigest() for number in range(580)]
    server.reset_counts()
    await store.delete_all([*there, *never])
    assert server.asked == {"POST": 2}
    assert [blob.name for blob in await everything(store)] == [retained]
    await store.delete(there[0])  # one that is not there is forgotten already


async def test_what_was_listed_is_removed_unless_it_was_stored_again_since(store: BlobStore) -> None:
    await store.put_bytes(b"listed")
    (blob,) = await everything(store)
    assert not await store.remove(blob, unless_after=blob.stored_at - 60.0)
    assert await store.remove(blob, unless_after=time.time() + 60.0)
    assert await everything(store) == []


async def test_a_bucket_that_is_not_there_is_storage_that_is_away_or_unknown(server: S3Server) -> None:
    store = BlobStore.from_settings(ServiceSettings(blob_url="s3://elsewhere/platform"))
    with pytest.raises((StorageAway, UnknownBlob)):
        await store.put_bytes(b"abc")
