"""Exit with the parent: a child holds the reading end of a pipe whose writing end only its parent has.

When the parent ends, the kernel closes the writing end. On Linux the kernel then kills the child at once (SIGKILL
through O_ASYNC); elsewhere a thread exits as soon as the computation lets it run.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading


def exit_when_closed(descriptor: int) -> None:
    """Exit this process when the other end of the pipe is closed. The pipe must carry no data."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    else:
        threading.Thread(target=_wait, args=(descriptor,), daemon=True).start()
    if select.select([descriptor], [], [], 0)[0]:  # closed before the kernel watched it
        os._exit(1)


def _wait(descriptor: int) -> None:
    select.select([descriptor], [], [])
    os._exit(1)
