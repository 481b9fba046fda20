"""Compiled loops kept on disk: those made from other sources than these are forgotten.

Numba looks at the file of a loop alone, not at the files of what it calls: after an upgrade it would go on with the
former machine code of those, or fail on a module that has another name now.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

MARK = "compiled-from"


def kept_in(sources: Path) -> Path:
    """The folder under which Numba keeps what it compiled of the sources in a folder."""
    elsewhere = os.environ.get("NUMBA_CACHE_DIR", "")
    return Path(elsewhere) if elsewhere else sources / "__pycache__"


def forget_stale(sources: Path, kept: Path | None = None) -> int:
    """Removes all indexes of loops if the sources are not those of the last time; how many. They are compiled again."""
    folder = kept_in(sources) if kept is None else kept
    digest = hashlib.sha256()
    for source in sorted(sources.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    mark = folder / MARK
    with suppress(OSError):  # none yet, or unreadable: as good as none
        if mark.read_text() == digest.hexdigest():
            return 0
    stale = list(folder.rglob("*.nbi"))
    with suppress(OSError):  # an image that cannot be written to was compiled together with its code
        for index in stale:
            index.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(digest.hexdigest())
    return len(stale)
