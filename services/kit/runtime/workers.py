"""Worker processes for long computations; cancelling a call kills its worker.

A thread cannot be stopped, so an abandoned computation would take the time of other callers. Workers are forked from a
small server process that has imported their modules, so a new one costs milliseconds. They are reused, and none
outlives the service (see `exit_with_parent`). Jobs and results pass through a socket pair between service and worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import multiprocessing
import os
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, cast

from services.kit.errors import Exhausted, TooLarge, Unavailable
from services.kit.rpc.principal import current_principal
from services.kit.runtime.exit_with_parent import exit_when_closed

WHAT_IF_NICENESS, PLANNING_NICENESS = 3, 1
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_context = multiprocessing.get_context("forkserver")
_starting = threading.Lock()  # the standard library's list of children is not thread-safe
_preloaded: set[str] = set()


class TooManyQuestions(Exhausted):
    """A caller exceeds its number of concurrent questions."""


class QuestionTooLarge(TooLarge):
    """The computation needs more memory than is available."""


class WorkerLost(Unavailable):
    """The worker process ended before it answered."""


class Workers:
    """A pool of at most `most` processes; further calls wait.

    niceness: nice value of the processes. per_caller: running and waiting calls of one caller, 0 for no limit. preload:
    modules that every worker imports.
    """

    def __init__(self, most: int, *, niceness: int, per_caller: int = 0, preload: Sequence[str] = ()) -> None:
        self._niceness, self._per_caller = niceness, per_caller
        self._threads = ThreadPoolExecutor(most, "workers")
        self._idle: list[_Worker] = []
        self._jobs: set[_Job] = set()
        self._of_caller: Counter[str] = Counter()
        _preloaded.update(preload)
        _context.set_forkserver_preload(sorted(_preloaded))

    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call `function(*arguments)` in a worker; cancelling the call kills the worker.

        The function must belong to a module; its errors are raised here.
        """
        caller = current_principal()
        name = f"{caller.role} {caller.subject}"
        if 0 < self._per_caller <= self._of_caller[name]:
            raise TooManyQuestions(
                f"you have {self._per_caller} questions under way, the limit; wait for the answer to one"
            )
        job = _Job()
        self._of_caller[name] += 1
        self._jobs.add(job)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._threads, self._do, job, function, arguments)
            succeeded, answer = await done
        except BaseException:
            job.abandon()
            raise
        finally:
            self._jobs.discard(job)
            self._of_caller[name] -= 1
            if not self._of_caller[name]:
                del self._of_caller[name]
        if not succeeded:
            raise cast(Exception, answer)
        return cast(T, answer)

    def warm(self) -> None:
        """Start a first worker in the background, for a call that is expected soon."""
        if not self._idle and not self._jobs:
            self._threads.submit(lambda: self._idle.append(self._take()))

    async def close(self) -> None:
        """Kill every worker."""
        for job in list(self._jobs):
            job.abandon()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        while self._idle:
            self._idle.pop().end()

    def _do(self, job: _Job, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """Run a job on a worker; called from a thread, which waits."""
        worker = self._take()
        try:
            if job.begin(worker):
                worker.connection.send((function, arguments))
                answer = worker.connection.recv()
                job.finish()
            else:
                answer = False, WorkerLost("the caller cancelled this call")
        except (EOFError, OSError) as error:
            worker.end()
            raise WorkerLost("the worker process was killed; ask again, perhaps with a smaller input") from error
        except BaseException:
            worker.end()
            raise
        self._idle.append(worker)
        return cast(tuple[bool, Any], answer)

    def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.process.is_alive():
                return worker
            worker.end()
        return _Worker.start(self._niceness)


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, the connection to it, and the end of the pipe whose closing ends it."""

    process: ForkServerProcess
    connection: Connection
    parent_end: Connection

    @classmethod
    def start(cls, niceness: int) -> _Worker:
        connection, child_connection = _context.Pipe()
        child_end, parent_end = _context.Pipe(duplex=False)
        process = _context.Process(target=_serve, args=(child_connection, child_end, niceness), daemon=True)
        with _starting:
            process.start()
        child_connection.close()
        child_end.close()
        return cls(process, connection, parent_end)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        self.parent_end.close()


@dataclass(slots=True, eq=False)
class _Job:
    """One call: the worker that runs it, and whether the caller gave up."""

    worker: _Worker | None = None
    abandoned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, worker: _Worker) -> bool:
        with self.lock:
            self.worker = None if self.abandoned else worker
            return not self.abandoned

    def finish(self) -> None:
        with self.lock:
            self.worker = None

    def abandon(self) -> None:
        with self.lock:
            self.abandoned = True
            if self.worker is not None:
                self.worker.process.kill()


def _serve(connection: Connection, child_end: Connection, niceness: int) -> None:
    """Run jobs in a worker until the connection closes."""
    exit_when_closed(child_end.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service handles Ctrl-C
    os.nice(niceness)
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("900")  # when memory runs out, the kernel kills a worker first
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        connection.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, function(*arguments)
    except MemoryError:
        return False, QuestionTooLarge("the computation needs more memory than is available; use a smaller input")
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        try:
            rebuilt = copy.copy(error)  # from its arguments, as unpickling will
        except Exception:
            return False, RuntimeError(text)
        rebuilt.add_note(text)
        return False, rebuilt
