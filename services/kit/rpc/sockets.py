"""Unix sockets of a platform on one machine, in a folder that only its user may enter.

A port on loopback would be open to every user and every program of the machine.
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
    """Return the socket of a service of the platform in this folder; in /tmp when the path is too long for a socket."""
    home = data_dir.resolve()
    folder = home / "sockets"
    if len(os.fsencode(folder / _LONGEST_NAME)) > _MOST_PATH_BYTES:
        mark = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
        folder = Path("/tmp") / f"coterie-{os.geteuid()}-{mark}"
    return f"{SCHEME}{folder / service}.sock"


def is_socket(address: str) -> bool:
    """Whether an address names a Unix socket."""
    return address.startswith(SCHEME)


def make_private(address: str) -> Path:
    """Make the folder of a socket private; return the socket's path. Raise if another user owns the folder."""
    path = Path(address.removeprefix(SCHEME))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    result = path.parent.lstat()
    if not stat.S_ISDIR(result.st_mode) or result.st_uid != os.geteuid():
        raise ValueError(
            f"{path.parent} is not a folder of this user, so another user could answer there; remove it, or set "
            "COTERIE_DATA_DIR to another folder"
        )
    if result.st_mode & 0o077:
        path.parent.chmod(0o700)
    return path


def claim(address: str) -> None:
    """Remove the socket of a killed server; raise if a server is running there."""
    path = make_private(address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            path.unlink(missing_ok=True)
            return
    raise ValueError(
        f"a server is already running at {path}: stop the platform of that folder, or choose another folder"
    )
