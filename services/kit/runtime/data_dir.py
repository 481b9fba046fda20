"""The data folder, which only the service's user may access: it holds databases, keys and updates.

A folder that other users can read is made private. A non-empty folder that other users can write is refused, because
they may have placed files in it. New files are private too.
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
    """Make new files of this process private, and its data folder if it has one."""
    os.umask(PRIVATE_UMASK)
    elsewhere = settings.database_url and settings.blob_url
    if not elsewhere or settings.data_dir.exists():
        make_private(settings.data_dir)


def make_private(folder: Path) -> None:
    """Create a private folder, or make an existing one private; raise ValueError if it cannot be trusted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status, me = folder.stat(), os.geteuid()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (me, ROOT):
        raise ValueError(
            f"the data folder {folder} belongs to another user ({status.st_uid}), who could read and change it; give "
            f"it to this user (chown {me} {folder}), or set COTERIE_DATA_DIR to another folder"
        )
    own = status.st_uid == me
    if mode & (0o022 if own else 0o002) and (not own or any(folder.iterdir())):
        raise ValueError(
            f"other users can write to the data folder {folder} (mode {mode:04o}) and may have put files there; check "
            f"its content, then chmod 700 {folder}, or set COTERIE_DATA_DIR to another folder"
        )
    if mode & 0o077 and own:
        try:
            folder.chmod(0o700)
        except OSError as error:
            raise ValueError(
                f"the data folder {folder} is open to other users (mode {mode:04o}), and chmod failed: {error.strerror}"
            ) from error
        _log.warning(
            "the data folder was open to other users; it is private now", folder=str(folder), mode=f"{mode:04o}"
        )
