"""Blob store: addressed by content, whole or not at all."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from services.kit.database.blobs import BadDigest, BlobStore, BlobTooLarge, DigestMismatch, StorageAway, UnknownBlob
from services.kit.runtime.settings import ServiceSettings


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("parts", [(b"",), (b"hello ", b"world"), (b"x" * 9_000_000, b"y" * 3)])
async def test_a_stream_is_stored_under_its_digest_and_comes_back(parts: tuple[bytes, ...], tmp_path: Path) -> None:
    store = BlobStore.in_folder(tmp_path)
    whole = b"".join(parts)
    digest, size = await store.put(pieces(*parts), max_bytes=20_000_000)
    assert (digest, size) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert b"".join([piece async for piece in store.stream(digest)]) == whole
    assert await store.size(digest) == len(whole)
    assert files(tmp_path) == [f"{digest[:2]}/{digest}"]


async def test_a_wrong_digest_or_too_many_bytes_leave_nothing_behind(tmp_path: Path) -> None:
    store = BlobStore.in_folder(tmp_path)
    with pytest.raises(DigestMismatch, match="send it again"):
        await store.put(pieces(b"abc"), max_bytes=10, digest="0" * 64)
    with pytest.raises(BlobTooLarge):
        await store.put(pieces(b"abc", b"x" * 10), max_bytes=10)
    assert files(tmp_path) == []


async def test_writing_twice_changes_nothing_and_deleting_twice_is_fine(tmp_path: Path) -> None:
    store = BlobStore.in_folder(tmp_path)
    first = await store.put_bytes(b"abc")
    second, _ = await store.put(pieces(b"a", b"bc"), max_bytes=10)
    third, _ = store.put_pieces(iter([b"ab", b"c"]))
    assert first == second == third
    assert bytes(store.read(first, 1, 2)) == b"bc"
    await store.delete(first)
    await store.delete(first)
    with pytest.raises(UnknownBlob):
        await store.size(first)


async def test_concurrent_blobs_are_stored_or_refused_and_leave_nothing_else(tmp_path: Path) -> None:
    store = BlobStore.in_folder(tmp_path)
    bodies = [f"body {n}".encode() for n in range(300)]
    spoilt = hashlib.sha256(bodies[7]).hexdigest()
    (tmp_path / spoilt[:2]).mkdir()
    (tmp_path / spoilt[:2] / spoilt).mkdir()  # a folder where the file should be: this one cannot be written
    put = await asyncio.gather(*(store.put_bytes(body) for body in bodies), return_exceptions=True)
    assert [n for n, result in enumerate(put) if isinstance(result, StorageAway)] == [7]
    whole = [hashlib.sha256(body).hexdigest() for body in bodies if body != bodies[7]]
    assert files(tmp_path) == sorted(f"{digest[:2]}/{digest}" for digest in whole)
    listed = [blob async for page in store.every() for blob in page]
    assert sorted(blob.name for blob in listed) == sorted(whole)


@pytest.mark.parametrize("digest", ["", "abc", "../../etc/passwd", "G" * 64])
async def test_only_digests_name_blobs(digest: str, tmp_path: Path) -> None:
    with pytest.raises(BadDigest):
        await BlobStore.in_folder(tmp_path).size(digest)


@pytest.mark.parametrize("far", [False, True], ids=["folder", "far"])
async def test_many_blobs_are_forgotten_together_also_ones_that_are_not_there(far: bool, tmp_path: Path) -> None:
    store = BlobStore(MemoryStore()) if far else BlobStore.in_folder(tmp_path)
    digests = [await store.put_bytes(f"blob {n}".encode()) for n in range(600)]
    retained, *gone = digests
    await store.delete_all([hashlib.sha256(b"never stored").hexdigest(), *gone])
    await store.delete_all([])
    left = [blob.name async for page in store.every() for blob in page]
    assert left == [retained]


async def test_a_folder_named_by_a_url_is_a_folder_like_any_other(tmp_path: Path) -> None:
    folder = tmp_path / "one two"
    store = BlobStore.from_settings(ServiceSettings(blob_url=folder.as_uri()))
    digest = await store.put_bytes(b"abc")
    assert store.is_near
    assert files(folder) == [f"{digest[:2]}/{digest}"]
