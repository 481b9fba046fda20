"""Cache of downloaded models by their SHA-256: one folder for all devices of a machine.

A file appears under its digest only when it is complete and its bytes have that digest. The cache evicts the least
recently used files to stay below its size limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs

from coterie.errors import CorruptDownload

MOST_BYTES = 4 << 30
_KEEP_SECONDS = 600.0
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


def default_cache_folder() -> Path:
    """$COTERIE_CACHE, or the user's cache folder."""
    given = os.environ.get("COTERIE_CACHE", "")
    return Path(given) if given else platformdirs.user_cache_path("coterie") / "models"


class BlobCache:
    """A content-addressed folder; threads that want the same blob wait for one download."""

    def __init__(self, folder: Path | None = None, *, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder or default_cache_folder()
        self._most_bytes = most_bytes
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def fetch(
        self,
        digest: str,
        pieces: Callable[[Callable[[Iterable[bytes]], None]], None],
        *,
        most_bytes: int | None = None,
    ) -> Path:
        """Return the path of the blob; download it if necessary: `pieces` gets a function that takes its bytes.

        A download stops after `most_bytes`, so that no platform can fill the disk.
        """
        if not _DIGEST.match(digest):
            raise CorruptDownload(f"{digest[:80]!r} is not a SHA-256; do not use this platform")
        path = self.folder / digest[:2] / digest
        with self._guard:
            lock = self._locks.setdefault(digest, threading.Lock())
        with lock:
            if path.exists():
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path)
                    return path
            most = self._most_bytes if most_bytes is None else most_bytes
            pieces(lambda chunks: self._store(path, digest, chunks, most))
        with self._guard:
            self._locks.pop(digest, None)
        self._trim()
        return path

    def _store(self, path: Path, digest: str, chunks: Iterable[bytes], most_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{digest}.{os.getpid()}.{threading.get_ident()}")
        hasher, size = hashlib.sha256(), 0
        try:
            with draft.open("wb") as file:
                for chunk in chunks:
                    size += len(chunk)
                    if size > most_bytes:
                        raise CorruptDownload(
                            f"{digest[:12]}… should have {most_bytes} bytes at most, and more came; "
                            "tell the platform's admin"
                        )
                    hasher.update(chunk)
                    file.write(chunk)
            if hasher.hexdigest() != digest:
                raise CorruptDownload(
                    f"asked for {digest[:12]}… and got bytes with the digest {hasher.hexdigest()[:12]}…; "
                    "try again, and tell the platform's admin if it stays so"
                )
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def _trim(self) -> None:
        files = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                files.append((path.stat().st_mtime, path.stat().st_size, path))
        total, now = sum(size for _, size, _ in files), time.time()
        for used_at, size, path in sorted(files):
            if total <= self._most_bytes or now - used_at < _KEEP_SECONDS:
                return
            path.unlink(missing_ok=True)
            total -= size
