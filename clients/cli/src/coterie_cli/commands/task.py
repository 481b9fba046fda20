"""`coterie task`: create, start, watch, list and cancel tasks; show plans and results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from coterie import records
from coterie.client import Platform
from coterie.records import ReplayedRound, TaskState
from coterie_cli.commands.payments import microcredits
from coterie_cli.commands.plans import plan_table
from coterie_cli.commands.results import Task, chosen, print_event
from coterie_cli.commands.task_parameters import parameters
from coterie_cli.console import FAILED, AsJson, Key, Mistake, Url, connect, out, read_json, show, table, when
from coterie_cli.live import follow
from coterie_cli.progress import WAIT_SECONDS

app = typer.Typer(help="Learning tasks, from creation to results.", no_args_is_help=True)
_CREATE_EPILOG = """[bold]Examples[/]

coterie task create digits --model model.safetensors --rounds 10 --min-devices 3 --auto-start\n
coterie task create digits --sample digits --training '{"epochs": 2, "learning_rate": 0.1}'\n
coterie task create quiet --sample digits --rounds 50 --target-epsilon 4 --delta 1e-5\n
coterie task create sturdy --sample digits --min-devices 5 --rule nnm+trimmed-mean --parameters '{"rule": {"f": 1}}'\n
coterie task create family --sample digits --join-by owners --invite own_01jd… --invite own_01je…\n
coterie task create swift --sample digits --mode asynchronous --parameters '{"asynchronous": {"buffer": 1}}'\n
coterie task create kitchen --preset survey --question 'How warm is it, in °C?' --low 10 --high 35 --escrow 40\n
coterie task create sharp --sample digits --rounds 50 --fraction 0.2 --stop '{"metric": "accuracy", "at": 0.95}'\n
coterie task create further --from-task digits --from-round best
"""


@app.command("create", epilog=_CREATE_EPILOG)
def create(
    name: str,
    model: Annotated[list[Path], typer.Option(help="Initial model, a safetensors file; one per model line.")] = [],  # noqa: B006 - typer reads it only
    sample: Annotated[str, typer.Option(help="A built-in initial model instead: digits.")] = "",
    preset: Annotated[str, typer.Option(help="fedavg, clusters, mesh, market, survey or multitask.")] = "fedavg",
    topology: Annotated[str, typer.Option(help="Topology in place of the preset's.")] = "",
    privacy: Annotated[str, typer.Option(help="Privacy in place of the preset's.")] = "",
    incentive: Annotated[str, typer.Option(help="Incentive in place of the preset's.")] = "",
    rule: Annotated[str, typer.Option(help="Aggregation rule: mean, median, nnm+trimmed-mean, fedadam, …")] = "mean",
    mode: Annotated[
        str, typer.Option(help="synchronous, or asynchronous: step whenever a buffer of updates is full.")
    ] = "synchronous",
    keep_rounds: Annotated[
        int, typer.Option(min=-1, help="Rounds whose updates stay stored for a replay; 0 = as the mode has it.")
    ] = 0,
    privacy_unit: Annotated[str, typer.Option(help="What privacy hides: a whole device, or one example.")] = "device",
    target_epsilon: Annotated[
        float, typer.Option(min=0, help="Total ε of a device over all rounds; determines the noise (uniform).")
    ] = 0.0,
    delta: Annotated[float, typer.Option(min=0, max=1, help="δ of --target-epsilon; by default 1e-5.")] = 0.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 10,
    min_devices: Annotated[int, typer.Option(min=1, help="Fewest devices a round may close with.")] = 1,
    max_devices: Annotated[int, typer.Option(min=0, help="Most devices per round; 0 = all.")] = 0,
    fraction: Annotated[float, typer.Option(min=0, max=1, help="Share of the devices per round; 0 = all.")] = 0.0,
    stop: Annotated[
        str, typer.Option(help='Stop early: JSON or @file, such as {"metric": "accuracy", "at": 0.9, "patience": 5}.')
    ] = "",
    from_task: Annotated[str, typer.Option(help="Start from a model of another task.")] = "",
    from_round: Annotated[
        str, typer.Option(help="Version of that task: a round, or best; by default the newest.")
    ] = "",
    quorum: Annotated[float, typer.Option(min=0.01, max=1, help="Share of devices that must deliver.")] = 0.8,
    round_seconds: Annotated[float, typer.Option(min=0.1, help="Longest duration of a round in seconds.")] = 600.0,
    training: Annotated[str, typer.Option(help="Training hints for devices: JSON or @file.")] = "{}",
    parameters: Annotated[str, typer.Option(help="Parameters of the axes: JSON or @file.")] = "{}",
    escrow: Annotated[str, typer.Option(help="Credits put in escrow, such as 2.5.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of every random choice.")] = 0,
    auto_start: Annotated[bool, typer.Option("--auto-start", help="Start when enough devices have enrolled.")] = False,
    description: Annotated[str, typer.Option(help="What device owners read before joining.")] = "",
    join_by: Annotated[str, typer.Option(help="Who may join: open (any device), owners or devices.")] = "",
    invite: Annotated[list[str], typer.Option(help="Id of an owner or device that may join; repeat for more.")] = [],  # noqa: B006
    question: Annotated[str, typer.Option(help="Question of a survey; its model is created automatically.")] = "",
    low: Annotated[float, typer.Option(help="Least answer to the question.")] = 0.0,
    high: Annotated[float, typer.Option(help="Greatest answer to the question.")] = 1.0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Create a task, or return the existing task of the same name and specification."""
    specification = {
        "name": name,
        "preset": preset,
        "topology": topology,
        "privacy": privacy,
        "incentive": incentive,
        "rule": rule,
        "mode": mode,
        "keep_rounds": keep_rounds,
        "privacy_unit": privacy_unit,
        "rounds": rounds,
        "min_devices": min_devices,
        "max_devices": max_devices,
        "quorum": quorum,
        "round_seconds": round_seconds,
        "training": read_json(training, "--training"),
        "parameters": read_json(parameters, "--parameters"),
        "escrow_microcredits": microcredits(escrow) if escrow else 0,
        "seed": seed,
        "auto_start": auto_start,
        "description": description,
        **_joining(join_by, invite),
        **({"fraction": fraction} if fraction else {}),
        **({"stop": read_json(stop, "--stop")} if stop else {}),
    }
    _set_target(specification, target_epsilon, delta)
    if question or preset == "survey":
        models: list[Path | bytes] = [_survey(specification, question, low, high)]
    else:
        models = [] if from_task else _models(model, sample)
    with connect(url, key) as platform:
        digests = [platform.upload_model(item) for item in models]
        if from_task:
            if model or sample:
                raise Mistake("--from-task is a model already; leave --model and --sample out")
            source = platform.find_task(from_task)
            digests = [chosen(source, list(platform.models(source.id)), from_round).digest]
        task = platform.create_task(**specification, model_digests=digests)
    show(task, as_json, lambda: f"task [bold]{task.id}[/] ({name}) is {task.state}{_price(task)}")


app.command("parameters", epilog="[bold]Examples[/]  coterie task parameters\n\ncoterie task parameters noise_max")(
    parameters
)


@app.command("start", epilog="[bold]Example[/]  coterie task start digits")
def start(task: Task, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Start a task that has enough devices."""
    with connect(url, key) as platform:
        started = platform.start_task(platform.find_task(task).id)
    show(started, as_json, lambda: f"{started.id} is {started.state}")


@app.command("cancel", epilog="[bold]Example[/]  coterie task cancel digits --why 'the question was wrong'")
def cancel(
    task: Task,
    why: Annotated[str, typer.Option(help="Reason, for the task's event log.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Cancel a task and abandon its open round."""
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
    show(tasks, as_json, lambda: table("", ["id", "name", "state", "round", "devices", "made"], rows))


@app.command("watch", epilog="[bold]Examples[/]  coterie task watch digits\n\ncoterie task watch digits --json")
def watch(task: Task, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Watch a task until it has ended, with a live bar, or with --json one event per line."""
    with connect(url, key) as platform:
        task_id = platform.find_task(task).id
        if as_json:
            ended = _print_events(platform, task_id)
        else:
            ended = follow(platform, task_id).task
            out.print(f"{ended.id} {ended.state}: {ended.reason}", markup=False)
    if ended.state != TaskState.FINISHED:
        raise typer.Exit(FAILED)


@app.command("replay", epilog="[bold]Examples[/]  coterie task replay swift\n\ncoterie task replay swift --json")
def replay(task: Task, url: Url = "", key: Key = "", as_json: AsJson = False) -> None:
    """Replay a task from stored updates and compare every bit; exit code 1 if one differs or none can be compared."""
    with connect(url, key) as platform:
        result = platform.find_task(task)
        rounds = list(platform.replay(result.id))
    again = [round for round in rounds if round.replayed_digests]
    different = [round for round in again if not round.same]
    title = f"{len(again)} of {len(rounds)} rounds replayed, {len(different)} with different bits"
    show(rounds, as_json, lambda: table(title, _REPLAYED, [_replayed_row(round) for round in rounds]))
    if different or not again:
        raise typer.Exit(FAILED)


@app.command(
    "plan", epilog="[bold]Examples[/]  coterie task plan digits --version 2\n\ncoterie task plan m --draw m.png"
)
def plan(
    task: Task,
    version: Annotated[int, typer.Option(min=0, help="Plan version; 0 = the newest.")] = 0,
    draw: Annotated[Path | None, typer.Option(help="Write it to a picture (.png, .svg, .pdf) or .graphml.")] = None,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show who exchanges updates with whom, and why."""
    with connect(url, key) as platform:
        described = platform.find_task(task)
        result = platform.plan(described.id, version)
    if draw is not None:
        from coterie_cli.drawing import draw_plan

        draw_plan(result, draw)
    show(result, as_json, lambda: Group(plan_table(result), *_price(described).splitlines()))


_REPLAYED = ["round", "updates", "most stale", "model", "replayed", ""]


def _replayed_row(round: ReplayedRound) -> list[str]:
    again = (round.replayed_digests or ["–"])[0][:12]
    verdict = round.note or ("identical" if round.same else "[bold red]different bits[/]")
    model = (round.model_digests or ["–"])[0][:12]
    return [str(round.round), str(round.updates), str(round.staleness), model, again, verdict]


def _task_row(task: records.Task) -> list[object]:
    specification = task.specification
    at = f"{task.round}/{specification.rounds}"
    return [task.id, specification.name, task.state, at, task.enrolled, when(task.created_at)[5:10]]


def _set_target(specification: dict[str, Any], target_epsilon: float, delta: float) -> None:
    """Add the total ε to the specification; its privacy defaults to uniform."""
    if not target_epsilon:
        if delta:
            raise Mistake("--delta belongs to --target-epsilon; give both, or the δ of one round in --parameters")
        return
    own = specification["parameters"].get("privacy") or {}
    target = {"target_epsilon": target_epsilon, **({"delta": delta} if delta else {})}
    specification["parameters"] = {**specification["parameters"], "privacy": {**own, **target}}
    specification["privacy"] = specification["privacy"] or "uniform"


def _price(task: records.Task) -> str:
    """Return a line with the privacy cost of all rounds for a device, if it is known in advance."""
    from coterie.strategies.consent import lifetime_of

    lifetime = lifetime_of(task.specification)
    return "" if lifetime is None else f"\neach device spends {lifetime}"


def _joining(join_by: str, invited: list[str]) -> dict[str, Any]:
    """Return the fields that restrict who may join; empty for an open task."""
    if join_by not in ("", "open", "owners", "devices"):
        raise Mistake(f"--join-by must be open, owners or devices, not {join_by!r}")
    if not invited:
        if join_by in ("owners", "devices"):
            raise Mistake(f"--join-by {join_by} needs --invite {join_by[:3]}_…, repeated for more")
        return {}
    kinds = {"owners" if item.startswith("own_") else "devices" for item in invited}
    if join_by == "open" or len(kinds) > 1 or join_by not in ("", *kinds):
        raise Mistake("--invite takes ids of owners (own_…) with --join-by owners, or of devices (dev_…) with devices")
    return {"join_by": kinds.pop(), "invited": invited}


def _survey(specification: dict[str, Any], question: str, low: float, high: float) -> bytes:
    """Complete the specification of a survey and return its initial model."""
    from coterie.privacy.question_text import Question
    from coterie_cli.question_task import initial_model, survey_specification

    if specification["preset"] != "survey" or not question:
        raise Mistake("a survey needs both --preset survey and --question, with --low and --high for the answers")
    try:
        survey = Question(question, low, high)
    except ValueError as error:
        raise Mistake(f"{error}; give --low and --high") from error
    own = specification["parameters"]
    fields = survey_specification(survey, own.get("pricing"))
    fields["parameters"] = {**own, **fields["parameters"]}
    specification.update(fields, description=specification["description"] or question)
    return initial_model()


def _models(files: list[Path], sample: str) -> list[Path | bytes]:
    if bool(files) == bool(sample):
        raise Mistake("give --model file.safetensors, --sample digits or --from-task, one of them")
    for file in files:
        if not file.is_file():
            raise Mistake(f"--model {file} is not a file; save one with coterie.learning.training.model_bytes(module)")
    if not sample:
        return list(files)
    if sample != "digits":
        raise Mistake(f"no sample is called {sample!r}; use digits")
    from coterie.learning.training import model_bytes
    from coterie.samples import digits_model

    return [model_bytes(digits_model())]


def _print_events(platform: Platform, task_id: str) -> records.Task:
    """Print all past and new events of a task; return the task when it has ended."""
    after = 0
    while True:
        ended = platform.task(task_id)
        result = platform.events(task_id, after=after, wait_seconds=0.0 if ended.state.has_ended else WAIT_SECONDS)
        for event in result:
            print_event(event)
            after = event.number
        if ended.state.has_ended and not result:
            return ended
