"""What an experiment is: a paper's setting, our deviations, the claims it makes, and a seeded trial that measures.

An experiment is data and one function. The function takes one cell of the experiment's grid and a seed and returns
readings; nothing else decides what is measured, so a run can be split over processes or machines, stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from coterie_lab.claims import Claim
from coterie_lab.readings import Reading

Scalar: TypeAlias = str | int | float | bool
Cell: TypeAlias = Mapping[str, Scalar]
"""One point of an experiment's grid: the parameters that a trial is given beside its seed."""
Mode: TypeAlias = Literal["quick", "full"]
Trial: TypeAlias = Callable[[Cell, int, Path | None], list[Reading]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How much one mode computes: which cells, how many seeds, and about how many processor seconds a trial takes."""

    cells: tuple[Cell, ...]
    seeds: int
    trial_seconds: float


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture of one figure: a line for every series over x, or bars where `x` is empty.

    Attributes:
        figure: name of the readings it shows.
        x, y: labels of the axes, with units.
        paper: numbers the paper prints for it: name → points (x, value); drawn as stars, and rows of the table.
        log_x, log_y: whether they span decades.
        groups: names of the bars of each series, whose readings have x = 0, 1, …; none where each has one bar.
    """

    figure: str
    x: str
    y: str
    paper: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment of a paper (or one of ours).

    Attributes:
        name: what `lab run` calls it, beginning with the paper's key: `capp-budget`.
        paper: page that reports it: `scfl`, `betta`, `mppfl`, `capp`, `dpvd` or `ours`.
        shows: the paper's figures and tables, for instance "Figure 1".
        setting: the paper's setting as we run it, in sentences.
        deviations: what we do otherwise, and why.
        trial: measures one cell with one seed.
        needs: data sets that must be there (`coterie_lab.data`).
        uses: data sets that are used where they are there, and in whose place others stand in.
        kernel: how devices train in it: "", or a name of `coterie_lab.cohorts`; it is written into the results.
        reading: what explains the outcome, in sentences; verdicts and numbers are computed and never in it.
    """

    name: str
    paper: str
    title: str
    shows: str
    setting: str
    trial: Trial
    quick: Effort
    full: Effort
    claims: tuple[Claim, ...]
    plots: tuple[Plot, ...]
    deviations: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    kernel: str = ""
    reading: str = ""

    def effort(self, mode: Mode) -> Effort:
        """Cells and seeds of a mode."""
        return self.full if mode == "full" else self.quick
