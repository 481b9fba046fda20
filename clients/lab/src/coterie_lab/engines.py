"""Where trials run: in processes of this machine, or on a Ray cluster. The same bytes come out of both.

A trial is a function of its cell, its seed and the data folder, and runs with one thread, so neither the engine nor
the number of workers can change a result on one kind of machine.

    ray start --head                                  # on the first machine
    ray start --address=HOST:6379                     # on every other one, with the same environment
    lab run capp-budget --engine ray --ray-address HOST:6379
"""

from __future__ import annotations

import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Literal, TypeAlias

from coterie_lab.runs import Outcome, Work, cell_of

EngineName: TypeAlias = Literal["local", "ray"]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_one(work: Work, data: str | None) -> Outcome:
    """Runs one trial; an error becomes a part of its outcome, with the line it came from."""
    from coterie_lab.registry import find

    _one_thread()
    began = time.process_time()
    try:
        readings = tuple(find(work.experiment).trial(cell_of(work), work.seed, None if data is None else Path(data)))
    except Exception as error:  # any error of a trial is a result: it is shown and never averaged away
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
        return Outcome(work, (), time.process_time() - began, message)
    return Outcome(work, readings, time.process_time() - began)


def run_local(todo: Sequence[Work], data: Path | None, workers: int) -> Iterator[Outcome]:
    """Outcomes as they are ready, from `workers` processes of one thread each."""
    folder = None if data is None else str(data)
    # Spawned, because a forked child of a process with torch's threads may hang.
    with _single_threaded_children():
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=begin_worker)
        try:
            futures = [pool.submit(run_one, work, folder) for work in todo]
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run_ray(todo: Sequence[Work], data: Path | None, address: str | None) -> Iterator[Outcome]:
    """The same on a Ray cluster: the one at `address`, or one of this machine's cores, started and stopped here."""
    import ray

    ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        remote = ray.remote(num_cpus=1, max_retries=2)(run_one)
        waiting = [remote.remote(work, None if data is None else str(data)) for work in todo]
        while waiting:
            ready, waiting = ray.wait(waiting)
            for one in ready:
                outcome: Outcome = ray.get(one)
                yield outcome
    finally:
        ray.shutdown()


@contextmanager
def _single_threaded_children() -> Iterator[None]:
    """While this is open, processes that are started know one thread."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def begin_worker() -> None:
    """A worker ends with the run that started it, however that ends, and keeps quiet."""
    Thread(target=_end_with_parent, daemon=True).start()
    # Warnings of simulated devices to their owners would hide the progress.
    logging.getLogger("coterie").setLevel(logging.ERROR)


def _end_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _one_thread() -> None:
    """One thread for torch, which does not always heed the environment."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)
