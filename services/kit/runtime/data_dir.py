"""The data folder: its databases, keys and updates are for nobody but the service's own user.

A folder that others may read is closed to them. One that others may write, and that holds something, is refused: they
may have put it there. Everything made from then on is private too.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from services.kit.observability.logs import get_logger
from services.kit.runtime.settings import ServiceSettings

PRIVATE_UMASK = 0o077
ROOT = 0
_log = get_logger()


def prepare(settings: ServiceSettings) -> None:
    """Files of this process are private from here on, and so is its data folder, where it has one."""
    os.umask(PRIVATE_UMASK)
    elsewhere = settings.database_url and settings.blob_url
    if not elsewhere or settings.data_dir.exists():
        make_private(settings.data_dir)


def make_private(folder: Path) -> None:
    """Makes a folder, or closes it to others; raises ValueError when it cannot be trusted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status, me = folder.stat(), os.geteuid()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (me, ROOT):
        raise ValueError(
            f"the data folder {folder} is another user's ({status.st_uid}), who could read and change everything in "
            f"it; give it to this user (chown {me} {folder}), or set COTERIE_DATA_DIR to another folder"
        )
    own = status.st_uid == me
    if mode & (0o022 if own else 0o002) and (not own or any(folder.iterdir())):
        raise ValueError(
            f"the data folder {folder} may be written by others (mode {mode:04o}), who may have put files there; look "
            f"at what is in it, then chmod 700 {folder}, or set COTERIE_DATA_DIR to another folder"
        )
    if mode & 0o077 and own:
        try:
            folder.chmod(0o700)
        except OSError as error:
            raise ValueError(
                f"the data folder {folder} is open to others (mode {mode:04o}): {error.strerror}"
            ) from error
        _log.warning("the data folder was open to others and is closed now", folder=str(folder), mode=f"{mode:04o}")
