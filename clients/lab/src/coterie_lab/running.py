"""Running an experiment: what is missing of it, on an engine, kept trial by trial; what it will cost is said first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie_lab.data import SETS
from coterie_lab.engines import EngineName, run_local, run_ray
from coterie_lab.experiment import Experiment, Mode
from coterie_lab.runs import Outcome, RunFolder, Work, works

Report = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Engine:
    """Where trials run."""

    name: EngineName = "local"
    workers: int = 2
    address: str | None = None

    def run(self, todo: Sequence[Work], data: Path | None) -> Iterator[Outcome]:
        """Outcomes in the order they are ready."""
        if self.name == "ray":
            return run_ray(todo, data, self.address)
        return run_local(todo, data, self.workers)


@dataclass(frozen=True, slots=True)
class Job:
    """An experiment in one mode: all its trials, and those that have still to run."""

    experiment: Experiment
    folder: RunFolder
    wanted: tuple[Work, ...]
    missing: tuple[Work, ...]

    @property
    def expected_seconds(self) -> float:
        """Processor seconds of what is missing, by the experiment's own estimate or by trials that are done."""
        spent = [outcome.seconds for outcome in self.folder.stored() if not outcome.error]
        item = sum(spent) / len(spent) if spent else self.experiment.effort(self.folder.mode).trial_seconds
        return item * len(self.missing)


def prepare(experiment: Experiment, mode: Mode, root: Path, seeds: int | None = None) -> Job:
    """What is to be done; trials that a run before this one finished with the same code are not done again."""
    folder = RunFolder(root, experiment.name, mode)
    wanted, finished = works(experiment, mode, seeds), folder.finished()
    return Job(experiment, folder, tuple(wanted), tuple(work for work in wanted if work.key not in finished))


def carry_out(job: Job, engine: Engine, data: Path | None, report: Report) -> list[Outcome]:
    """Runs what is missing, keeps every outcome as it comes, and writes the table of all. Returns those that failed."""
    failed = []
    job.folder.note_data([item.name for item in SETS if not item.missing(data)])
    if job.missing:
        for outcome in engine.run(job.missing, data):
            job.folder.store(outcome)
            report(outcome)
            if outcome.error:
                failed.append(outcome)
    job.folder.write_parquet(job.wanted, job.experiment.kernel)
    return failed
