"""`coterie task results`, `figures` and `events`: model versions, their metrics, and the event log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from coterie import records
from coterie.client import Platform
from coterie.learning.metrics import headed
from coterie.parameters.task import SurveyParameters
from coterie.records import Event, Measurement, Model, Round
from coterie_cli.commands.payments import write_rows
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, err, out, show, table, when

app = typer.Typer()
Task = Annotated[str, typer.Argument(help="Task's id or name.")]
NOT_MEASURED = "not measured"
MOST_FIGURES = 4
"""Most metrics in a table; JSON and CSV have all."""
_FIRST = ("accuracy", "loss")
_RESULTS_EPILOG = """[bold]Examples[/]

coterie task results digits\n
coterie task results digits --csv rounds.csv\n
coterie task results digits --save model.safetensors --round best
"""


@app.command("results", epilog=_RESULTS_EPILOG)
def results(
    task: Task,
    save: Annotated[
        Path | None, typer.Option(help="Write a model to this file: the newest, or that of --round.")
    ] = None,
    round: Annotated[str, typer.Option(help="Version to save: a round number, 0 = the initial model, or best.")] = "",
    csv: Annotated[
        Path | None, typer.Option(help="Write the versions as CSV to this file; - = standard output.")
    ] = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show the model versions of a task with their metrics, or save one."""
    if round and save is None:
        raise Mistake("--round says which version to save; give --save FILE as well")
    with connect(url, key) as platform:
        result = platform.find_task(task)
        rounds, models = list(platform.rounds(result.id)), list(platform.models(result.id))
        if save is not None:
            wanted = chosen(result, models, round)
            shutil.copyfile(platform.download_model(wanted.digest), save)
            err.print(f"version {wanted.version} is in {save}", markup=False, soft_wrap=True)
    if csv is not None:
        columns, rows = csv_rows(rounds, models)
        write_rows(csv, columns, rows)
        if not as_json:
            return
    document = {"task": result, "rounds": rounds, "models": models}
    if any("estimate" in round.metrics for round in rounds):
        show(document, as_json, lambda: _finding(result, rounds))
    else:
        show(document, as_json, lambda: results_table(result, rounds, models))


@app.command("figures", epilog="[bold]Example[/]  coterie task figures digits --round 3")
def figures(
    task: Task,
    round: Annotated[int, typer.Option(min=-1, help="Measured version; -1 = the newest.")] = -1,
    line: Annotated[int, typer.Option(min=0, help="Model line.")] = 0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show the metrics that each device measured for a model version."""
    with connect(url, key) as platform:
        result = platform.find_task(task)
        version = round if round >= 0 else _newest_measured(platform, result.id, line)
        measured = list(platform.measurements(result.id, version, line=line))
    document = {"task_id": result.id, "version": version, "line": line, "measurements": measured}
    show(document, as_json, lambda: _figures_table(result, version, measured))


@app.command("events", epilog="[bold]Examples[/]  coterie task events digits\n\ncoterie task events digits --json")
def events(
    task: Task,
    kind: Annotated[str, typer.Option(help="Only kinds with this prefix, such as round or update.rejected.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show the events of a task in order; with --json one event per line."""
    with connect(url, key) as platform:
        result = [e for e in all_events(platform, platform.find_task(task).id) if e.kind.startswith(kind)]
    if as_json:
        for event in result:
            print_event(event)
        return
    for event in result:
        where = f"round {event.round}" if event.round else ""
        parts = [when(event.at), event.kind, where, event.device_id, event.message]
        out.print("  ".join(part for part in parts if part), markup=False, soft_wrap=True)


def all_events(platform: Platform, task_id: str) -> Iterable[Event]:
    """Yield every event of a task so far."""
    after = 0
    while page := platform.events(task_id, after=after):
        yield from page
        after = page[-1].number


def print_event(event: Event) -> None:
    """Print an event as one line of JSON."""
    out.print(json.dumps(event.to_dict()), markup=False, soft_wrap=True)


# --- versions ---------------------------------------------------------------------------------------------------------


def chosen(task: records.Task, models: Sequence[Model], round: str) -> Model:
    """Return the version of the first model line that --round names."""
    line = {model.version: model for model in models if model.line == 0}
    if not round:
        return line[max(line)]
    if round == "best":
        if task.best_version is None:
            raise Mistake("no version is marked best: create the task with --stop, or wait for the first metrics")
        return line[task.best_version]
    if not round.isdecimal() or int(round) not in line:
        raise Mistake(f"--round must be from 0 to {max(line)}, or best, not {round!r}")
    return line[int(round)]


def results_table(task: records.Task, rounds: Sequence[Round], models: Sequence[Model]) -> RenderableType:
    """Make a table with a row per version, or per round where the platform makes no versions."""
    made = {(model.line, model.version): model for model in models}
    lines = max((model.line for model in models), default=0) + 1
    by_number = {round.number: round for round in rounds}
    versioned = any(version for _, version in made)
    places = (
        sorted(made, key=lambda place: (place[1], place[0])) if versioned else [(0, number) for number in by_number]
    )
    metrics_of = [_metrics_of(made.get(place), by_number.get(place[1]), versioned) for place in places]
    own = any(evaluated for _, evaluated in metrics_of)
    agreed = "" if own else _stopping_by(task, models)
    names = _names((item for pair in metrics_of for item in pair), task)[: 2 if own or agreed else MOST_FIGURES]
    extras = _extras(rounds)
    columns = [
        "version" if versioned else "round",
        *(["model"] if lines > 1 else []),
        *extras,
        "updates",
        *(headed(name, task.better) for name in names),
        *([f"agreed {headed(agreed, task.better)}"] if agreed else []),
        *([f"own {headed(name, task.better)}" for name in names] if own else ["seconds"]),
        *(["digest"] if versioned else []),
    ]
    rows = []
    for (line, version), (metrics, evaluated) in zip(places, metrics_of, strict=True):
        round = by_number.get(version)
        took = f"{round.done_at - round.opened_at:.2f}" if round and round.done_at else "–"
        rows.append(
            [
                f"{version} best" if task.best_version == version else str(version),
                *([str(line)] if lines > 1 else []),
                *(str(getattr(round, extra, "–")) for extra in extras),
                _updates(round) if round else "–",
                *(_figure(name, metrics) for name in names),
                *([_figure(agreed, made[line, version].agreed)] if agreed else []),
                *([_figure(name, evaluated) for name in names] if own else [took]),
                *([made[line, version].digest[: 8 if own else 12]] if versioned else []),
            ]
        )
    under_way = [r for r in rounds if versioned and (0, r.number) not in made]
    rows += [_under_way(r, columns, extras) for r in under_way]
    return table(_title(task), columns, rows)


def _metrics_of(
    model: Model | None, round: Round | None, versioned: bool
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return a row's metrics from devices and from the publisher; in a mesh, those of the devices' models."""
    if not versioned:
        return (round.metrics if round else {}), {}
    return (model.metrics, model.evaluated) if model else ({}, {})


def _updates(round: Round) -> str:
    """Format deliveries of participants; a dash after `coterie prune`."""
    return f"{round.delivered}/{round.participants}" if round.participants else "–"


def _stopping_by(task: records.Task, models: Sequence[Model]) -> str:
    """Return the metric of the stop rule if owners have agreed values of it, else an empty string."""
    stop = task.specification.stop
    return stop.metric if stop and any(stop.metric in model.agreed for model in models) else ""


def _under_way(round: Round, columns: Sequence[str], extras: Sequence[str]) -> list[str]:
    """Make the row of a round without a version."""
    cells = {"version": str(round.number), "updates": _updates(round), "digest": round.state}
    cells |= {extra: str(getattr(round, extra)) for extra in extras}
    return [cells.get(column, "–") for column in columns]


def _extras(rounds: Sequence[Round]) -> list[str]:
    """Return the optional columns that this task needs."""
    shown = {"attempt": any(r.attempt > 1 for r in rounds), "disputed": any(r.disputed for r in rounds)}
    return [name for name, is_shown in shown.items() if is_shown]


def _names(measured: Iterable[Mapping[str, float]], task: records.Task) -> list[str]:
    """Order the metrics: accuracy and loss, then those with a direction, then the others."""
    result = {name for metrics in measured for name in metrics if "[" not in name}
    rest = sorted(result - set(_FIRST), key=lambda name: (headed(name, task.better) == name, name))
    return [*(n for n in _FIRST if n in result), *rest] or ["accuracy"]


def _figure(name: str, metrics: Mapping[str, float]) -> str:
    if name not in metrics:
        return NOT_MEASURED
    return f"{metrics[name]:.1%}" if name == "accuracy" else f"{metrics[name]:.4g}"


def _title(task: records.Task) -> str:
    reason = f": {task.reason}" if task.reason else ""
    return f"{task.specification.name} ({task.id}) {task.state}{reason}"


def _finding(task: records.Task, rounds: list[Round]) -> RenderableType:
    """Make the table of a survey's result."""
    survey, result = SurveyParameters.of(task.specification.parameters), rounds[-1].metrics
    rows = [
        ["estimate", f"{result['estimate']:.6g}"],
        ["standard error", f"{result['standard_error']:.3g}"],
        *([["error at most (95 %)", f"{result['interval']:.3g}"]] if "interval" in result else []),
        ["error at most (95 %, Chebyshev)", f"{result['error_bound']:.3g}"],
        ["answers", " of ".join(f"{item:.0f}" for item in (result["answers"], rounds[-1].participants) if item)],
        ["asked for", f"{survey.low:g} to {survey.high:g}"],
    ]
    return table(f"{survey.question}\n{_title(task)}", ["", ""], rows)


# --- CSV and devices --------------------------------------------------------------------------------------------------


def csv_rows(rounds: Sequence[Round], models: Sequence[Model]) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows with every version of every line; unmeasured metrics are empty."""
    by_number = {round.number: round for round in rounds}
    versioned = any(model.version for model in models)
    made: list[Model | None] = list(models) if versioned else [None] * len(rounds)
    places = [(m.line, m.version) for m in models] if versioned else [(0, number) for number in by_number]
    metrics_of = [_metrics_of(m, by_number.get(place[1]), versioned) for m, place in zip(made, places, strict=True)]
    names = sorted({name for metrics, _ in metrics_of for name in metrics})
    own = sorted({name for _, evaluated in metrics_of for name in evaluated})
    columns = ["line", "version", "attempt", "participants", "delivered", "opened_at", "done_at", "digest"]
    columns += ["devices", "samples", *names, *(f"publisher.{name}" for name in own)]
    rows: list[list[Any]] = []
    for (line, version), model, (metrics, evaluated) in zip(places, made, metrics_of, strict=True):
        round = by_number.get(version)
        facts = [getattr(round, name, "") for name in columns[2:7]]
        retained = [model.digest, model.devices, model.samples] if model else ["", "", ""]
        values = [*(metrics.get(name, "") for name in names), *(evaluated.get(name, "") for name in own)]
        rows.append([line, version, *facts, *retained, *values])
    return columns, rows


def _newest_measured(platform: Platform, task_id: str, line: int) -> int:
    measured = [m.version for m in platform.models(task_id) if m.line == line and m.metrics]
    if not measured:
        raise Mistake("no version of this task is measured yet; name one with --round to see partial results")
    return max(measured)


def _figures_table(task: records.Task, version: int, measured: Sequence[Measurement]) -> RenderableType:
    names = _names((item.metrics for item in measured), task)[:MOST_FIGURES]
    rows = [[m.device_id, f"{m.samples:g}", *(_figure(name, m.metrics) for name in names)] for m in measured]
    columns = ["device", "samples", *(headed(name, task.better) for name in names)]
    return table(f"{task.specification.name}, version {version}", columns, rows)
