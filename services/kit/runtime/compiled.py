"""Invalidate Numba's on-disk cache when the sources change.

Numba checks only the file of a compiled function, not the files of the functions it calls. After an upgrade it would
reuse their old machine code, or fail on a renamed module.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

MARK = "compiled-from"


def cache_of(sources: Path) -> Path:
    """Return the folder in which Numba caches the functions of a folder of sources."""
    elsewhere = os.environ.get("NUMBA_CACHE_DIR", "")
    return Path(elsewhere) if elsewhere else sources / "__pycache__"


def forget_stale(sources: Path, cache: Path | None = None) -> int:
    """Delete the cache's index files if the sources changed; return how many. Numba then compiles again."""
    folder = cache_of(sources) if cache is None else cache
    digest = hashlib.sha256()
    for source in sorted(sources.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    mark = folder / MARK
    with suppress(OSError):  # missing or unreadable: treat the cache as stale
        if mark.read_text() == digest.hexdigest():
            return 0
    stale = list(folder.rglob("*.nbi"))
    with suppress(OSError):  # a read-only image was compiled with its code
        for index in stale:
            index.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(digest.hexdigest())
    return len(stale)
