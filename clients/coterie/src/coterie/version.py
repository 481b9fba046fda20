"""Which version of Coterie this is, and of which commit it was made."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

VERSION = "0.2.0"
UNKNOWN = "unknown"
_HERE = Path(__file__).parent
_ROOT = _HERE.parents[3]


@cache
def commit() -> str:
    """The short commit: an image has it in its environment, a source archive in a file, a checkout asks git."""
    if given := os.environ.get("COTERIE_COMMIT", ""):
        return given
    written = (_HERE / "commit.txt").read_text().strip()
    if not written.startswith("$"):
        return written
    if not (_ROOT / "clients" / "coterie" / "pyproject.toml").is_file():
        return UNKNOWN  # installed somewhere: a repository around it is not ours
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), "rev-parse", "--short=7", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN


def full_version() -> str:
    """Return version and commit: "0.2.0 (commit abc1234)"."""
    return f"{VERSION} (commit {commit()})"
