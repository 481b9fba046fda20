"""A process that must not outlive another holds the reading end of a pipe whose writing end only the other has.

When the other is gone, however it went, the kernel closes that end. On Linux the kernel then also ends the holder at
once, whatever it computes; elsewhere a thread does it as soon as the computation lets it run.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading


def exit_when_closed(descriptor: int) -> None:
    """From here on this process ends when the other end of the pipe is closed. Nothing may ever be sent through it."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_ASYNC)
    else:
        threading.Thread(target=_wait, args=(descriptor,), daemon=True).start()
    if select.select([descriptor], [], [], 0)[0]:  # closed before the kernel was told to watch
        os._exit(1)


def _wait(descriptor: int) -> None:
    select.select([descriptor], [], [])
    os._exit(1)
