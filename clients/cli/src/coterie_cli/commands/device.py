"""`coterie device`: register a device, run its agent, list devices."""

from __future__ import annotations

import logging
import math
import signal
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coterie.agent.home import DeviceHome
from coterie.agent.registration import register_device
from coterie.errors import BadHome, NotFound
from coterie.protocol.sanitise import sanitise
from coterie_cli.console import (
    FAILED,
    INTERRUPTED,
    AsJson,
    Key,
    Mistake,
    Url,
    connect,
    default_url,
    err,
    show,
    table,
    when,
)

if TYPE_CHECKING:
    from coterie.agent.agent import Agent
    from coterie.learning.learner import Learner
    from coterie_cli.sources import Source

app = typer.Typer(help="Devices: register one, run its agent, list all.", no_args_is_help=True)
_RUN_EPILOG = """[bold]Examples[/]

coterie device run --home phone --task digits --source my_device.py:make\n
coterie device run --home phone --task digits --sample digits --part 1/3\n
coterie device run --home phone --source my_device.py:make   [dim]tasks you approve in a linked browser[/]

The function returns (model, data) or (model, data, test_data): a torch module and datasets.
"""


@app.command("register", epilog="[bold]Example[/]  coterie device register --token ct_… --name phone --home phone")
def register(
    home: Annotated[Path, typer.Option(help="Folder for the device's keys and identity.")],
    token: Annotated[str, typer.Option(envvar="COTERIE_TOKEN", help="Enrolment token from an admin.")] = "",
    name: Annotated[str, typer.Option(help="Name of the device.")] = "",
    kind: Annotated[str, typer.Option(help="What it is, such as smartphone.")] = "",
    brand: Annotated[str, typer.Option(help="Who made it.")] = "",
    url: Url = "",
    as_json: AsJson = False,
) -> None:
    """Register a device; a folder with a registered device stays unchanged and needs no token."""
    identity = register_device(
        DeviceHome(home), url or default_url(), token, name=name or home.name, profile={"kind": kind, "brand": brand}
    )
    document = {"id": identity.id, "name": identity.name, "owner_id": identity.owner_id, "home": str(home)}
    show(document, as_json, lambda: f"device [bold]{identity.id}[/] ({identity.name}), keys in {home}")


@app.command("run", epilog=_RUN_EPILOG)
def run(
    home: Annotated[Path, typer.Option(help="Folder of a registered device.")],
    task: Annotated[
        list[str],
        typer.Option(
            help="Task to join, by id or name; repeat for more. By default those approved in a linked browser."
        ),
    ] = [],  # noqa: B006 - typer reads it only
    source: Annotated[str, typer.Option(help="file.py:function that returns model and data.")] = "",
    sample: Annotated[str, typer.Option(help="Built-in sample data instead: digits.")] = "",
    part: Annotated[str, typer.Option(help="Which part of the sample, such as 1/3.")] = "1/1",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the task has been created.")] = False,
    on_error: Annotated[
        str,
        typer.Option(
            help="After an exception in your code the device declines the round; then stop, or continue with the next."
        ),
    ] = "stop",
    as_json: AsJson = False,
) -> None:
    """Run a device's agent until its tasks end or Ctrl-C; a restart resumes its work.

    Without --task, wait for tasks that the owner approves in a linked browser (`coterie device link`).
    """
    if on_error not in ("stop", "continue"):
        raise Mistake(f"--on-error must be stop or continue, not {on_error!r}")
    if DeviceHome(home).identity() is None:
        raise Mistake(f"{home} holds no registered device; run `coterie device register --home {home}` first")
    if not task and not DeviceHome(home).browsers():
        raise Mistake("give --task, or link a browser in which you approve tasks: `coterie device link`")
    training = _source(source, sample, part) if source or sample or not _has_answer(home) else None
    from coterie.agent.agent import Agent

    signal.signal(signal.SIGTERM, _interrupt)
    handler = logging.StreamHandler()
    handler.setFormatter(_SanitisingFormatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    agent = Agent(home) if training is None else _training_agent(home, training, on_error)
    for name in task:
        _join(agent, name, wait)
    summary = agent.run(ask_owner=not task)
    rounds = [asdict(result) for result in summary.rounds]
    show({"tasks": summary.tasks, "rounds": rounds}, as_json, lambda: str(summary))
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    if any(state != "finished" for state in summary.tasks.values()):
        raise typer.Exit(FAILED)


@app.command("list", epilog="[bold]Example[/]  coterie device list --owner own_01jd0c…")
def list_devices(
    owner: Annotated[str, typer.Option(help="Only this owner's, by id.")] = "",
    state: Annotated[str, typer.Option(help="Only active or revoked ones.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """List devices."""
    with connect(url, key) as platform:
        devices = list(platform.devices(owner=owner, state=state))
    rows = [[f"{d.id}\n{d.owner_id}", f"{d.name}\n{d.kind}", d.state, when(d.last_seen_at)[:16]] for d in devices]
    show(devices, as_json, lambda: table("", ["device, owner", "name, kind", "state", "last seen"], rows))


@app.command("revoke", epilog="[bold]Example[/]  coterie device revoke dev_01jd0d… --why 'lost on the train'")
def revoke(
    device: str,
    why: Annotated[str, typer.Option(help="Why, for the audit log.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a device permanently."""
    with connect(url, key) as platform:
        revoked = platform.revoke_device(device, why)
    show(revoked, as_json, lambda: f"{device} is revoked")


@app.command("erase", epilog="[bold]Example[/]  coterie device erase dev_01jd0d… --yes")
def erase(
    device: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Revoke a device and delete its name, profile, keys, ties and letters; ledger and audit log keep its id."""
    if not yes:
        typer.confirm(f"Delete {device} permanently? Models keep what they learnt from it.", abort=True)
    with connect(url, key) as platform:
        erased = platform.erase_device(device)
    show(erased, as_json, lambda: f"{device} is deleted; only its id stays in the ledger and the audit log")


@app.command("answer", epilog="[bold]Example[/]  coterie device answer 21.5 --home phone --question 'How warm is it?'")
def answer(
    value: Annotated[float, typer.Argument(help="The answer; it stays on the device, which sends only a noised one.")],
    home: Annotated[Path, typer.Option(help="Folder of a registered device.")],
    question: Annotated[str, typer.Option(help="Exact text of the question; by default any question.")] = "",
    as_json: AsJson = False,
) -> None:
    """Store the answer that a device gives to surveys, in its private settings."""
    settings = _private_settings(home)
    if question:
        settings["answers"] = {**settings.get("answers", {}), question: value}
    else:
        settings["answer"] = value
    DeviceHome(home).save_private_settings(settings)
    show({"home": str(home), "question": question}, as_json, lambda: f"{home} answers {question or 'any question'}")


_COSTS_EPILOG = """[bold]Examples[/]

coterie device costs --home phone --quadratic 1.5 --fixed 0.01\n
coterie device costs --home phone --per-joule 0.000002   [dim]the device measures its energy[/]
"""


@app.command("costs", epilog=_COSTS_EPILOG)
def costs(
    home: Annotated[Path, typer.Option(help="Folder of a registered device.")],
    quadratic: Annotated[float, typer.Option(help="a: credits per squared unit of exposure; 0 = keep.")] = 0.0,
    linear: Annotated[float, typer.Option(help="b: credits per unit of exposure; -1 = keep.")] = -1.0,
    fixed: Annotated[float, typer.Option(help="C: credits per round of work; -1 = keep.")] = -1.0,
    kappa: Annotated[float, typer.Option(help="κ: credits per cycle and hertz of computing; -1 = keep.")] = -1.0,
    per_joule: Annotated[float, typer.Option(help="Credits per joule of computing; -1 = keep.")] = -1.0,
    as_json: AsJson = False,
) -> None:
    """Show or set what privacy and work cost the owner; without costs, a device draws and stores random ones.

    With a price for computing, the device measures the cycles, clock and energy of its training and adds their cost to
    each round it decides about. The costs never leave the device.
    """
    from coterie.agent.computing_cost import Tariff
    from coterie.privacy.budget_choice import PrivateCosts

    settings = _private_settings(home)
    retained = dict(settings.get("costs") or {})
    given = {"quadratic": quadratic or None, "linear": None if linear == -1.0 else linear}
    given["fixed"] = None if fixed == -1.0 else fixed
    changed = {name: value for name, value in given.items() if value is not None}
    if changed:
        retained |= changed
        try:
            retained = asdict(PrivateCosts(**retained))
        except (TypeError, ValueError) as error:
            raise Mistake(f"{error}; give --quadratic above 0 and the others at least 0") from error
        DeviceHome(home).keep_private({"costs": retained})
    prices = {"kappa": kappa, "credits_per_joule": per_joule}
    changed_prices = {name: value for name, value in prices.items() if value != -1.0}
    computing = dict(settings.get("computing") or {}) | changed_prices
    if changed_prices:
        try:
            computing = asdict(Tariff(**computing))
        except (TypeError, ValueError) as error:
            raise Mistake(f"{error}; give --kappa and --per-joule at least 0") from error
        DeviceHome(home).keep_private({"computing": computing})
    parts = (retained, computing, dict(settings.get("effort") or {}))
    rows = [[name.replace("_", " "), value] for part in parts for name, value in part.items() if value is not None]
    title = "" if retained else "no privacy costs set: the device draws them when it first sells"
    every = retained | ({"computing": computing} if computing else {}) | ({"effort": parts[2]} if parts[2] else {})
    show(every, as_json, lambda: table(title, ["cost", "credits, or measured"], rows))


_CARE_EPILOG = """[bold]Examples[/]

coterie device care --home phone --own 2 --social 0.5\n
coterie device care --home phone --hidden 5   [dim]cap what a survey assumes about neighbours[/]
"""


@app.command("care", epilog=_CARE_EPILOG)
def care(
    home: Annotated[Path, typer.Option(help="Folder of a registered device.")],
    own: Annotated[float, typer.Option(help="Value of a unit of own privacy in credits; -1 = keep.")] = -1.0,
    social: Annotated[
        float, typer.Option(help="Value of a fully trusted friend's privacy in credits; -1 = keep.")
    ] = -1.0,
    hidden: Annotated[
        float,
        typer.Option(help="Most variance, in squared ranges, by which other data hide its own; -1 = keep."),
    ] = -1.0,
    as_json: AsJson = False,
) -> None:
    """Show or set the value of the owner's and friends' privacy in surveys; by default what a survey assumes.

    --hidden caps the variance by which, as a survey claims, other data hide its own. The values never leave the device.
    """
    retained = dict(_private_settings(home).get("care") or {})
    values = {"own": own, "social": social, "hidden": hidden}
    changed = {name: value for name, value in values.items() if value != -1.0}
    if not all(0.0 <= value < math.inf for value in changed.values()):
        raise Mistake("care must be finite and not negative; give --own, --social and --hidden at least 0")
    if changed:
        retained |= changed
        DeviceHome(home).keep_private({"care": retained})
    title = "" if retained else "no values set; surveys assume defaults"
    show(
        retained, as_json, lambda: table(title, ["care", "value"], [[name, value] for name, value in retained.items()])
    )


@app.command(
    "pause", epilog="[bold]Example[/]  coterie device pause --home phone   [dim]until: coterie device resume[/]"
)
def pause(home: Annotated[Path, typer.Option(help="Folder of a registered device.")], as_json: AsJson = False) -> None:
    """Pause a device, also while it runs: it declines all work from now on."""
    _set_paused(home, True, as_json)


@app.command("resume", epilog="[bold]Example[/]  coterie device resume --home phone")
def resume(home: Annotated[Path, typer.Option(help="Folder of a registered device.")], as_json: AsJson = False) -> None:
    """End a pause."""
    _set_paused(home, False, as_json)


def _set_paused(home: Path, paused: bool, as_json: bool) -> None:
    settings = _private_settings(home)
    DeviceHome(home).save_private_settings({**settings, "paused": paused})
    show({"home": str(home), "paused": paused}, as_json, lambda: f"{home} {'pauses' if paused else 'works again'}")


@app.command("limits", epilog="[bold]Example[/]  coterie device limits --home phone --set epochs=5 --set steps=100")
def limits(
    home: Annotated[Path, typer.Option(help="Folder of a registered device.")],
    changes: Annotated[list[str], typer.Option("--set", metavar="NAME=NUMBER", help="Change one.")] = [],  # noqa: B006 - typer reads it only
    as_json: AsJson = False,
) -> None:
    """Show or set the most work a device does in one round; it declines work beyond that."""
    from coterie.agent.workload import Workload

    settings = _private_settings(home)
    retained = dict(settings.get("limits") or {})
    for change in changes:
        name, _, number = change.partition("=")
        if not number.isdecimal():
            raise Mistake(f"--set takes a name and a whole number, such as epochs=5, not {change!r}")
        retained[name] = int(number)
    try:
        known = asdict(Workload.of({"limits": retained}))
    except BadHome as error:
        raise Mistake(f"--set: {error}" if changes else str(error)) from error
    if changes:
        DeviceHome(home).save_private_settings({**settings, "limits": retained})
    rows = [[name, value, "the owner's" if name in retained else ""] for name, value in known.items()]
    show(known, as_json, lambda: table("", ["at most", "", ""], rows))


def _private_settings(home: Path) -> dict[str, Any]:
    if DeviceHome(home).identity() is None:
        raise Mistake(f"{home} holds no registered device; run `coterie device register --home {home}` first")
    return dict(DeviceHome(home).private_settings())


def _has_answer(home: Path) -> bool:
    return bool(DeviceHome(home).private_settings().keys() & {"answer", "answers"})


def _training_agent(home: Path, source: Source | Learner, on_error: str) -> Agent:
    from coterie.agent.agent import Agent
    from coterie_cli.sources import Source

    if not isinstance(source, Source):
        return Agent(home, learner=source, on_error="continue" if on_error == "continue" else "stop")
    from coterie.learning.training import single_threaded

    single_threaded()
    return Agent(
        home,
        source.model,
        source.data,
        test_data=source.test_data,
        on_error="continue" if on_error == "continue" else "stop",
    )


def _source(source: str, sample: str, part: str) -> Source | Learner:
    from coterie_cli.sources import digits_source, load_source

    if bool(source) == bool(sample):
        raise Mistake("give --source file.py:function or --sample digits, one of them")
    if source:
        return load_source(source)
    number, _, parts = part.partition("/")
    if sample != "digits" or not number.isdecimal() or not parts.isdecimal():
        raise Mistake(f"--sample must be digits and --part such as 1/3, not {sample!r} and {part!r}")
    return digits_source(int(number), int(parts))


def _join(agent: Agent, task: str, wait: bool) -> None:
    while True:
        try:
            agent.join(task)
            return
        except NotFound:
            if not wait:
                raise
            err.print(f"no task {task} yet; waiting")
            time.sleep(1.0)


class _SanitisingFormatter(logging.Formatter):
    """Sanitises log lines, so that text from the platform or a peer cannot control the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return sanitise(super().format(record))


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
