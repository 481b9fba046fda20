"""A run's folder: one small file for every finished trial, and one Parquet file of all when the run is complete.

Files are written beside their place and moved there, so a run that was killed at any moment has whole trials only and
goes on with those that are missing. The folder is named after the code that ran: results of other code never mix.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from coterie_lab.experiment import Cell, Experiment, Mode
from coterie_lab.readings import Reading

CODE = ("coterie", "coterie_lab", "services")
"""Packages whose source a result depends on."""


@dataclass(frozen=True, slots=True)
class Work:
    """One trial to run: a cell and a seed of an experiment."""

    experiment: str
    cell: tuple[tuple[str, Any], ...]
    seed: int

    @property
    def key(self) -> str:
        """A name for its file that depends on nothing but what is computed."""
        text = json.dumps([self.experiment, self.cell, self.seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial: its readings, or the error that ended it, and the processor seconds it took."""

    work: Work
    readings: tuple[Reading, ...]
    seconds: float
    error: str = ""


@cache
def code_digest() -> str:
    """Twelve digits that change with any line of the code a result depends on."""
    digest = hashlib.sha256()
    for package in CODE:
        spec = find_spec(package)
        for folder in sorted(spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def works(experiment: Experiment, mode: Mode, seeds: int | None = None) -> list[Work]:
    """All trials of a mode, every seed of a cell after another."""
    effort = experiment.effort(mode)
    return [
        Work(experiment.name, tuple(sorted(cell.items())), seed)
        for cell in effort.cells
        for seed in range(effort.seeds if seeds is None else seeds)
    ]


class RunFolder:
    """Finished trials of one experiment in one mode, by one state of the code."""

    def __init__(self, root: Path, experiment: str, mode: Mode, code: str | None = None) -> None:
        self.experiment, self.mode, self.code = experiment, mode, code or code_digest()
        self.path = root / f"{experiment}-{mode}-{self.code}"

    def store(self, outcome: Outcome) -> None:
        """Keeps one finished trial. Whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True)
        target = self.path / f"{outcome.work.key}.json"
        beside = target.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
        beside.replace(target)

    def stored(self) -> Iterator[Outcome]:
        """Every finished trial, in the order of their names; not those that a power cut or a full disk damaged."""
        for path in sorted(self.path.glob("*.json")):
            try:
                yield _outcome(path.read_bytes())
            except (ValueError, KeyError, TypeError):
                continue

    def finished(self) -> set[str]:
        """Keys of the trials that need not run again; those that failed are tried again."""
        return {outcome.work.key for outcome in self.stored() if not outcome.error}

    def note_data(self, names: Sequence[str]) -> None:
        """Keeps which data sets were there when it ran."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "data.txt").write_text("\n".join(names), encoding="utf-8")

    def data(self) -> list[str]:
        """Data sets that were there when it ran."""
        noted = self.path / "data.txt"
        return noted.read_text(encoding="utf-8").splitlines() if noted.exists() else []

    def write_parquet(self, wanted: Sequence[Work], kernel: str = "") -> Path:
        """All readings of the wanted trials in one table, in an order that no engine changes, with their kernel."""
        known = {outcome.work.key: outcome for outcome in self.stored()}
        rows = [
            {
                "experiment": work.experiment,
                "cell": json.dumps(dict(work.cell), sort_keys=True, ensure_ascii=False),
                "seed": work.seed,
                "kernel": kernel,
                **asdict(reading),
            }
            for work in wanted
            if work.key in known
            for reading in known[work.key].readings
        ]
        target = self.path / "results.parquet"
        beside = target.with_suffix(f".{os.getpid()}")
        parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), beside)
        beside.replace(target)
        return target


SCHEMA = pa.schema(
    [
        ("experiment", pa.string()),
        ("cell", pa.string()),
        ("seed", pa.int64()),
        ("kernel", pa.string()),
        ("figure", pa.string()),
        ("series", pa.string()),
        ("x", pa.float64()),
        ("value", pa.float64()),
    ]
)


def _outcome(data: bytes) -> Outcome:
    raw = json.loads(data)
    work = Work(raw["work"]["experiment"], tuple((k, v) for k, v in raw["work"]["cell"]), raw["work"]["seed"])
    return Outcome(work, tuple(Reading(**item) for item in raw["readings"]), raw["seconds"], raw["error"])


def newest(root: Path, experiment: str, mode: Mode) -> RunFolder | None:
    """The folder of the run that was written last, whatever code it ran; None where there is none."""
    result = [
        path for path in root.glob(f"{experiment}-{mode}-*") if path.name.rpartition("-")[0] == f"{experiment}-{mode}"
    ]
    if not result:
        return None
    latest = max(result, key=lambda path: path.stat().st_mtime)
    return RunFolder(root, experiment, mode, latest.name.rpartition("-")[2])


def cell_of(work: Work) -> Cell:
    """The cell as a mapping."""
    return dict(work.cell)
