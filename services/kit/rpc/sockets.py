"""Unix sockets of a platform on one machine, in a folder that only its user may enter: nobody else there can call.

A port on loopback is open to every user and every program of the machine, whoever started them.
"""

from __future__ import annotations

import hashlib
import os
import socket
import stat
from pathlib import Path

SCHEME = "unix:"
_MOST_PATH_BYTES = 100  # kernels take 103 to 107
_LONGEST_NAME = "aggregation.sock"


def address(data_dir: Path, service: str) -> str:
    """Where a service of the platform in that folder answers; in /tmp when its path is too long for a socket."""
    home = data_dir.resolve()
    folder = home / "sockets"
    if len(os.fsencode(folder / _LONGEST_NAME)) > _MOST_PATH_BYTES:
        mark = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        folder = Path("/tmp") / f"coterie-{os.geteuid()}-{mark}"
    return f"{SCHEME}{folder / service}.sock"


def is_socket(where: str) -> bool:
    """Whether an address is a Unix socket's."""
    return where.startswith(SCHEME)


def make_private(where: str) -> Path:
    """Path of a socket whose folder is there and its user's alone; raises when it is somebody else's."""
    path = Path(where.removeprefix(SCHEME))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    result = path.parent.lstat()
    if not stat.S_ISDIR(result.st_mode) or result.st_uid != os.geteuid():
        raise ValueError(
            f"{path.parent} is not a folder of this user: another could answer there; remove it, or choose another "
            "COTERIE_DATA_DIR"
        )
    if result.st_mode & 0o077:
        path.parent.chmod(0o700)
    return path


def claim(where: str) -> None:
    """Makes room for a server: what a killed one left is removed, one that runs is not displaced."""
    path = make_private(where)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
            return
    raise ValueError(f"somebody serves at {path} already: a platform runs in that folder; stop it, or choose another")
