"""Files that only their owner may read: refusing wide permissions, creating narrow ones, replacing them whole.

Those that are databases are changed in transactions that are on disk when they end.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path


class WidePermissions(Exception):
    """A private file that other users of this machine may read or write."""


def refuse_wide_permissions(path: Path) -> None:
    """Raise `WidePermissions` when group or others may do anything with the file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise WidePermissions(
            f"{path} has mode {mode:04o}, so other users of this machine could read it; "
            f"run `chmod 600 {path}`, and replace its keys if somebody may have"
        )


def create_private_file(path: Path) -> bool:
    """Create an empty file of mode 0600, and its folder of mode 0700; False when the file is already there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def write_private_file(path: Path, content: bytes, *, replace: bool) -> None:
    """Write the whole file or nothing, mode 0600, on disk before returning.

    The content goes to a neighbour file first, so that a crash leaves the old file or the new one. Without `replace`
    an existing file is kept and FileExistsError is raised, also when two processes race.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    _flush_folder(path.parent)


@contextlib.contextmanager
def transaction(path: Path, *, secure_delete: bool = False) -> Iterator[sqlite3.Connection]:
    """A transaction of a database that is there, wholly on disk at the end of the block or undone.

    A file that was deleted meanwhile is an error, not a new and empty one that has forgotten everything. With
    `secure_delete` what is deleted is overwritten.
    """
    address = path.absolute().as_uri() + "?mode=rw"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30.0, isolation_level=None)) as database:
        database.execute("PRAGMA synchronous = EXTRA")
        if secure_delete:
            database.execute("PRAGMA secure_delete = ON")
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
        except BaseException:
            database.execute("ROLLBACK")
            raise
        database.execute("COMMIT")


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
