"""Compiled loops kept on disk: those made from sources that have changed since are forgotten.

Numba looks at the file of a loop alone, not at the files of what it calls: after an upgrade it would go on with the
former machine code of those, or fail on a module that has another name now.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent


def kept_in() -> Path:
    """The folder under which Numba keeps what it compiled of these sources."""
    elsewhere = os.environ.get("NUMBA_CACHE_DIR", "")
    return Path(elsewhere) if elsewhere else HERE / "__pycache__"


def forget_stale(sources: Path = HERE, kept: Path | None = None) -> int:
    """Removes every index that is older than the newest source; how many. What has no index is compiled again."""
    newest = max(source.stat().st_mtime_ns for source in sources.glob("*.py"))
    stale = [index for index in (kept or kept_in()).rglob("*.nbi") if index.stat().st_mtime_ns < newest]
    for index in stale:
        with suppress(OSError):  # an image that cannot be written to was compiled together with its code
            index.unlink(missing_ok=True)
    return len(stale)
