"""Long computations in processes of their own, which are killed when nobody waits for the answer any more.

A thread cannot be stopped: what an abandoned caller asked for would go on and take the time of everybody else. Workers
are forked from a small server process that has imported what they need, so a new one costs milliseconds; they are kept
for the next question, and none outlives the service (see `lifeline`). Jobs and answers pass through a socket pair that
only the service and its own worker hold.
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
_starting = threading.Lock()  # the standard library's list of children is not made for several threads
_preloaded: set[str] = set()


class TooManyQuestions(Exhausted):
    """A caller has asked more at once than one caller may."""


class QuestionTooLarge(TooLarge):
    """The answer needs more memory than there is."""


class WorkerLost(Unavailable):
    """The process that worked on the answer is gone."""


class Workers:
    """At most `most` processes at a time; whoever comes later waits.

    niceness: how far they stand back for the rest of the machine.  per_caller: questions one caller may have under way
    or waiting, 0 for no limit.  preload: modules that every worker needs.
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
        """`function(*arguments)`, computed in a worker; a cancelled call kills it.

        The function is one of a module, not a closure; its errors are raised here.
        """
        caller = current_principal()
        name = f"{caller.role} {caller.subject}"
        if 0 < self._per_caller <= self._of_caller[name]:
            raise TooManyQuestions(f"you have {self._per_caller} questions under way; wait for the answer to one")
        job = _Job()
        self._of_caller[name] += 1
        self._jobs.add(job)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._threads, self._do, job, function, arguments)
            good, answer = await done
        except BaseException:
            job.abandon()
            raise
        finally:
            self._jobs.discard(job)
            self._of_caller[name] -= 1
            if not self._of_caller[name]:
                del self._of_caller[name]
        if not good:
            raise cast(Exception, answer)
        return cast(T, answer)

    def warm(self) -> None:
        """Starts a first worker in the background, unless there is one: somebody will need it soon."""
        if not self._idle and not self._jobs:
            self._threads.submit(lambda: self._idle.append(self._take()))

    async def close(self) -> None:
        """Ends every worker."""
        for job in list(self._jobs):
            job.abandon()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        while self._idle:
            self._idle.pop().end()

    def _do(self, job: _Job, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """One job, from a thread that waits for the worker."""
        worker = self._take()
        try:
            if job.begin(worker):
                worker.line.send((function, arguments))
                answer = worker.line.recv()
                job.finish()
            else:
                answer = False, WorkerLost("nobody waits for this any more")
        except (EOFError, OSError) as error:
            worker.end()
            raise WorkerLost("the process that worked on this was ended; ask again, perhaps for less") from error
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
    """A process, the line to it, and the end of the pipe whose closing ends it."""

    process: ForkServerProcess
    line: Connection
    lifeline: Connection

    @classmethod
    def start(cls, niceness: int) -> _Worker:
        line, other_line = _context.Pipe()
        held, lifeline = _context.Pipe(duplex=False)
        process = _context.Process(target=_serve, args=(other_line, held, niceness), daemon=True)
        with _starting:
            process.start()
        other_line.close()
        held.close()
        return cls(process, line, lifeline)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()
        self.lifeline.close()


@dataclass(slots=True, eq=False)
class _Job:
    """One call: which worker is at it, and whether anybody still waits."""

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


def _serve(line: Connection, held: Connection, niceness: int) -> None:
    """A worker's life: one question after the other until the line is cut."""
    exit_when_closed(held.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's to answer
    os.nice(niceness)
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("900")  # when memory runs out, a worker dies and not the service
    while True:
        try:
            function, arguments = line.recv()
        except EOFError:
            return
        line.send(_answer(function, arguments))


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, function(*arguments)
    except MemoryError:
        return False, QuestionTooLarge("the answer needs more memory than there is; ask for less")
    except Exception as error:
        told = "".join(traceback.format_exception(error))
        try:
            sound = copy.copy(error)  # rebuilt from its arguments, as it will be on the other side
        except Exception:
            return False, RuntimeError(told)
        sound.add_note(told)
        return False, sound
