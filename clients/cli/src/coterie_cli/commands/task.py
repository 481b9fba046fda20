"""`coterie task`: create, start, watch, list, cancel tasks; their plans and results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from coterie import records
from coterie.client import Platform
from coterie.records import Round, TaskState
from coterie_cli.commands.plans import plan_table
from coterie_cli.console import FAILED, AsJson, Key, Mistake, Url, connect, out, read_json, show, table, when
from coterie_cli.live import follow
from coterie_cli.progress import watch as watch_task

app = typer.Typer(help="Learning tasks, from creation to results.", no_args_is_help=True)
_CREATE_EPILOG = """[bold]Examples[/]

coterie task create digits --model model.safetensors --rounds 10 --min-devices 3 --auto-start\n
coterie task create digits --sample digits --training '{"epochs": 2, "learning_rate": 0.1}'\n
coterie task create quiet --sample digits --privacy uniform --parameters '{"privacy": {"epsilon": 4}}'\n
coterie task create sturdy --sample digits --min-devices 5 --rule nnm+trimmed-mean --parameters '{"rule": {"f": 1}}'\n
coterie task create kitchen --preset survey --question 'How warm is it, in °C?' --low 10 --high 35 --escrow 40000000
"""
Task = Annotated[str, typer.Argument(help="Task's id or name.")]


@app.command("create", epilog=_CREATE_EPILOG)
def create(
    name: str,
    model: Annotated[list[Path], typer.Option(help="Initial model, a safetensors file; one per model line.")] = [],  # noqa: B006 - typer reads it only
    sample: Annotated[str, typer.Option(help="A built-in initial model instead: digits.")] = "",
    preset: Annotated[str, typer.Option(help="fedavg, clusters, mesh, market, survey or multitask.")] = "fedavg",
    topology: Annotated[str, typer.Option(help="Another topology than the preset's.")] = "",
    privacy: Annotated[str, typer.Option(help="Another privacy than the preset's.")] = "",
    incentive: Annotated[str, typer.Option(help="Another incentive than the preset's.")] = "",
    rule: Annotated[
        str, typer.Option(help="How updates become a step of the model: median, nnm+trimmed-mean, fedadam, …")
    ] = "mean",
    privacy_unit: Annotated[str, typer.Option(help="What privacy hides: a whole device, or one example.")] = "device",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 10,
    min_devices: Annotated[int, typer.Option(min=1, help="Fewest devices a round may close with.")] = 1,
    max_devices: Annotated[int, typer.Option(min=0, help="Most devices per round; 0 = all.")] = 0,
    quorum: Annotated[float, typer.Option(min=0.01, max=1, help="Share of devices that must deliver.")] = 0.8,
    round_seconds: Annotated[float, typer.Option(min=0.1, help="Longest a round stays open.")] = 600.0,
    training: Annotated[str, typer.Option(help="What devices are told about training: JSON or @file.")] = "{}",
    parameters: Annotated[str, typer.Option(help="Parameters of the axes: JSON or @file.")] = "{}",
    escrow: Annotated[int, typer.Option(min=0, help="Micro-credits put in escrow.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    auto_start: Annotated[bool, typer.Option("--auto-start", help="Start when enough devices have enrolled.")] = False,
    description: Annotated[str, typer.Option(help="What device owners read before joining.")] = "",
    question: Annotated[str, typer.Option(help="What a survey asks; its model is made by itself.")] = "",
    low: Annotated[float, typer.Option(help="Least answer to the question.")] = 0.0,
    high: Annotated[float, typer.Option(help="Greatest answer to the question.")] = 1.0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Create a task; the same name and specification give the task that exists."""
    specification = {
        "name": name,
        "preset": preset,
        "topology": topology,
        "privacy": privacy,
        "incentive": incentive,
        "rule": rule,
        "privacy_unit": privacy_unit,
        "rounds": rounds,
        "min_devices": min_devices,
        "max_devices": max_devices,
        "quorum": quorum,
        "round_seconds": round_seconds,
        "training": read_json(training, "--training"),
        "parameters": read_json(parameters, "--parameters"),
        "escrow_microcredits": escrow,
        "seed": seed,
        "auto_start": auto_start,
        "description": description,
    }
    if question or preset == "survey":
        models: list[Path | bytes] = [_survey(specification, question, low, high)]
    else:
        models = _models(model, sample)
    with connect(url, key) as platform:
        digests = [platform.upload_model(each) for each in models]
        task = platform.create_task(**specification, model_digests=digests)
    show(task, as_json, lambda: f"task [bold]{task.id}[/] ({name}) is {task.state}")


@app.command("start", epilog="[bold]Example[/]  coterie task start digits")
def start(task: Task, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Start a task that has enough devices."""
    with connect(url, key) as platform:
        started = platform.start_task(platform.find_task(task).id)
    show(started, as_json, lambda: f"{started.id} is {started.state}")


@app.command("cancel", epilog="[bold]Example[/]  coterie task cancel digits --why 'the question was wrong'")
def cancel(
    task: Task,
    why: Annotated[str, typer.Option(help="Why, for the task's log.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a task; its open round is abandoned."""
    with connect(url, key) as platform:
        cancelled = platform.cancel_task(platform.find_task(task).id, why)
    show(cancelled, as_json, lambda: f"{cancelled.id} is {cancelled.state}")


@app.command("list", epilog="[bold]Example[/]  coterie task list --state running")
def list_tasks(
    state: Annotated[str, typer.Option(help="Only created, running, finished, failed or cancelled ones.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List tasks, newest first."""
    with connect(url, key) as platform:
        tasks = list(platform.tasks(state=state))
    rows = [_task_row(task) for task in tasks]
    show(tasks, as_json, lambda: table("", ["id", "name", "preset", "state", "round", "devices", "created"], rows))


@app.command("watch", epilog="[bold]Examples[/]  coterie task watch digits\n\ncoterie task watch digits --json")
def watch(task: Task, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Watch a task until it has ended: a live bar, or with --json one event per line."""
    with connect(url, key) as platform:
        task_id = platform.find_task(task).id
        if as_json:
            ended = _print_events(platform, task_id)
        else:
            ended = follow(platform, task_id).task
            out.print(f"{ended.id} {ended.state}: {ended.reason}", markup=False)
    if ended.state != TaskState.FINISHED:
        raise typer.Exit(FAILED)


@app.command("results", epilog="[bold]Example[/]  coterie task results digits --save model.safetensors")
def results(
    task: Task,
    save: Annotated[Path | None, typer.Option(help="Write the newest model to this file.")] = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show a task's rounds and models, and fetch the newest model."""
    with connect(url, key) as platform:
        found = platform.find_task(task)
        rounds, models = list(platform.rounds(found.id)), list(platform.models(found.id))
        if save is not None:
            shutil.copyfile(platform.download_model(found.model_digests[0]), save)
    document = {"task": found, "rounds": rounds, "models": models}
    if any("estimate" in round.metrics for round in rounds):
        show(document, as_json, lambda: _finding(found, rounds))
        return
    show(document, as_json, lambda: table(_title(found), _COLUMNS, [_row(round) for round in rounds]))


@app.command(
    "plan", epilog="[bold]Examples[/]  coterie task plan digits --version 2\n\ncoterie task plan m --draw m.png"
)
def plan(
    task: Task,
    version: Annotated[int, typer.Option(min=0, help="Which plan; 0 = the newest.")] = 0,
    draw: Annotated[Path | None, typer.Option(help="Write it to a picture (.png, .svg, .pdf) or .graphml.")] = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show who exchanges updates with whom, and why."""
    with connect(url, key) as platform:
        found = platform.plan(platform.find_task(task).id, version)
    if draw is not None:
        from coterie_cli.drawing import draw_plan

        draw_plan(found, draw)
    show(found, as_json, lambda: plan_table(found))


_COLUMNS = ["round", "state", "attempt", "updates", "accuracy", "loss", "seconds", "model"]


def _task_row(task: records.Task) -> list[object]:
    specification = task.specification
    kind = specification.preset or specification.topology
    at = f"{task.round}/{specification.rounds}"
    return [task.id, specification.name, kind, task.state, at, task.enrolled, when(task.created_at)]


def _title(task: records.Task) -> str:
    reason = f": {task.reason}" if task.reason else ""
    return f"{task.specification.name} ({task.id}) {task.state}{reason}"


def _row(round: Round) -> list[str]:
    metrics, took = round.metrics, round.done_at - round.opened_at
    return [
        str(round.number),
        round.state,
        str(round.attempt),
        f"{round.delivered}/{round.participants}",
        f"{metrics['accuracy']:.1%}" if "accuracy" in metrics else "–",
        f"{metrics['loss']:.4g}" if "loss" in metrics else "–",
        f"{took:.2f}" if round.done_at else "–",
        (round.model_digests or ["–"])[0][:12],
    ]


def _survey(specification: dict[str, Any], question: str, low: float, high: float) -> bytes:
    """Completes the specification of a survey; its model."""
    from coterie.questions import Question
    from coterie_cli.asking import blank
    from coterie_cli.asking import specification as survey_of

    if specification["preset"] != "survey" or not question:
        raise Mistake("a survey needs both --preset survey and --question, with --low and --high for the answers")
    try:
        asked = Question(question, low, high)
    except ValueError as error:
        raise Mistake(f"{error}; give --low and --high") from error
    given = specification["parameters"]
    made = survey_of(asked, given.get("pricing"))
    made["parameters"] = {**given, **made["parameters"]}
    specification.update(made, description=specification["description"] or question)
    return blank()


def _finding(task: records.Task, rounds: list[Round]) -> RenderableType:
    """What a survey found."""
    section, found = task.specification.parameters["survey"], rounds[-1].metrics
    rows = [
        ["estimate", f"{found['estimate']:.6g}"],
        ["standard error", f"{found['standard_error']:.3g}"],
        ["off by no more than (95 %)", f"{found['error_bound']:.3g}"],
        ["answers", f"{found['answers']:.0f} of {rounds[-1].participants}"],
        ["asked for", f"{section['low']:g} to {section['high']:g}"],
    ]
    return table(f"{section['question']}\n{_title(task)}", ["", ""], rows)


def _models(files: list[Path], sample: str) -> list[Path | bytes]:
    if bool(files) == bool(sample):
        raise Mistake("give --model file.safetensors or --sample digits, one of them")
    for file in files:
        if not file.is_file():
            raise Mistake(f"--model {file} is no file; save one with coterie.training.model_bytes(module)")
    if not sample:
        return list(files)
    if sample != "digits":
        raise Mistake(f"no sample is called {sample!r}; there is digits")
    from coterie.samples import digits_model
    from coterie.training import model_bytes

    return [model_bytes(digits_model())]


def _print_events(platform: Platform, task_id: str) -> records.Task:
    for standing in watch_task(platform, task_id):
        for event in standing.events:
            out.print(json.dumps(event.to_dict()), markup=False, soft_wrap=True)
    return standing.task
