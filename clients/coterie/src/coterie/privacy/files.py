"""Files that only their owner may read: checks of permissions, creation and atomic replacement.

Transactions of database files are on disk when they end.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path


class WidePermissions(Exception):
    """Other users of this machine may read or write a private file."""


def refuse_wide_permissions(path: Path) -> None:
    """Raise `WidePermissions` if group or others have any permission on the file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise WidePermissions(
            f"{path} has mode {mode:04o}, so other users of this machine could read it; "
            f"run `chmod 600 {path}`, and replace its keys if another user may have read them"
        )


def create_private_file(path: Path) -> bool:
    """Create an empty file of mode 0600 in a folder of mode 0700; return False if the file exists."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def write_private_file(path: Path, content: bytes, *, replace: bool) -> None:
    """Write a file of mode 0600 atomically and flush it to disk.

    The content goes to a temporary file first, so that a crash leaves the old file or the new one. Without `replace`
    an existing file stays and FileExistsError is raised, also when two processes race.
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
    """Open a transaction of an existing database; it is on disk at the end of the block, or rolled back.

    A missing file is an error: an empty new one would have lost its records. `secure_delete` overwrites deleted rows.
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
