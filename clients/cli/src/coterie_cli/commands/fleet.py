"""`coterie fleet`: simulated devices in one process."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from coterie.client import Platform
from coterie.errors import CoterieError
from coterie.parameters.task import SumsParameters
from coterie.records import Task
from coterie_cli.console import FAILED, AsJson, Key, Url, connect, default_url, err, show
from coterie_cli.load_generator import LoadGenerator, LoadSummary, RandomWorker, Worker

PREFIX = "simulated"
app = typer.Typer(help="Run simulated devices against a platform.", no_args_is_help=True)
_EPILOG = """[bold]Examples[/]

coterie fleet run --task digits --devices 100\n
coterie fleet run --task mine --devices 50 --learner my_learner.py:make --start\n
coterie fleet run --task digits --devices 1000 --no-training
"""


@app.command("run", epilog=_EPILOG)
def run(
    task: Annotated[str, typer.Option(help="Task to join, by id or name.")],
    devices: Annotated[int, typer.Option(min=1, max=100_000, help="How many devices.")] = 20,
    learner: Annotated[
        str,
        typer.Option(
            help="Your own model and data: file.py:function or package.module:function. It is called with (number, "
            "devices) and returns a learner, (model, data) or (model, data, test data). By default, the digits."
        ),
    ] = "",
    training: Annotated[
        bool,
        typer.Option(
            "--training/--no-training",
            help="Run complete devices with noise, ledgers and letters; or send random updates to measure the "
            "platform alone (star without privacy only).",
        ),
    ] = True,
    epsilon: Annotated[
        float, typer.Option(min=0.0, help="Most ε that each simulated owner allows over all tasks (δ = 1e-5).")
    ] = 1e6,
    owner: Annotated[str, typer.Option(help="Owner of the devices; created if new.")] = "fleet",
    start: Annotated[bool, typer.Option("--start", help="Start the task when all have enrolled.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the shards and of random updates.")] = 0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Register devices, enrol them in a task and do their work until it ends; needs an admin's key."""
    url = url or default_url()
    with connect(url, key) as platform:
        joined = platform.find_task(task)
        owner_id = platform.create_owner(owner).id
        token, prefix = platform.issue_token(owner_id, uses=devices).token, _prefix(platform, owner_id)

        def begin() -> None:
            if not as_json:
                err.print(f"{devices} devices are enrolled")
            if start:
                platform.start_task(joined.id)

        if training:
            state = _train(
                url,
                token=token,
                prefix=prefix,
                task=joined,
                devices=devices,
                place=learner,
                epsilon=epsilon,
                seed=seed,
                begin=begin,
                as_json=as_json,
            )
        else:
            state = _measure(
                url, token, prefix=prefix, task=joined, devices=devices, seed=seed, begin=begin, as_json=as_json
            )
    if state != "finished":
        raise typer.Exit(FAILED)


def _prefix(platform: Platform, owner_id: str) -> str:
    """Return a prefix of device names that no earlier fleet of the owner has used."""
    taken = {device.name.rpartition("-")[0] for device in platform.devices(owner=owner_id)}
    return next(p for n in count(1) if (p := PREFIX if n == 1 else f"{PREFIX}-{n}") not in taken)


def _train(
    url: str,
    token: str,
    prefix: str,
    task: Task,
    devices: int,
    place: str,
    epsilon: float,
    seed: int,
    begin: Callable[[], None],
    as_json: bool,
) -> str:
    from coterie.agent.fleet import Fleet, limit_for
    from coterie_cli.sources import digits_learners, learners_of

    learners = learners_of(place, devices) if place else digits_learners(devices, seed=seed)
    limit = limit_for(task.specification, epsilon)
    with tempfile.TemporaryDirectory(prefix="coterie-fleet-", ignore_cleanup_errors=True) as folder:
        fleet = Fleet.register(url, token, learners, folder=Path(folder), prefix=prefix, limit=limit)
        fleet.join(task.id)
        begin()
        summary = fleet.run()
    show(asdict(summary), as_json, lambda: "\n".join([str(summary), *_reasons(summary.reasons)]))
    return summary.state


def _reasons(reasons: dict[str, int]) -> list[str]:
    return [f"  {count} × {why}" for why, count in reasons.items()]


def _measure(
    url: str, token: str, prefix: str, task: Task, devices: int, seed: int, begin: Callable[[], None], as_json: bool
) -> str:
    chosen = task.specification
    secure = SumsParameters.of(chosen.parameters).mode == "secure"
    if (chosen.topology, chosen.privacy) != ("star", "none") or secure:
        raise CoterieError(
            "--no-training sends random updates straight to the platform, which fits tasks of topology star without "
            "privacy or secure sums; leave --no-training out"
        )
    names = [f"{prefix}-{index + 1:05}" for index in range(devices)]
    summary = asyncio.run(_random(url, token, task_id=task.id, names=names, worker=RandomWorker(seed), begin=begin))
    text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.outcomes.items()))
    show(
        asdict(summary),
        as_json,
        lambda: f"task {summary.state}: {text or 'nothing delivered'} in {summary.seconds:.1f} s",
    )
    return summary.state


async def _random(
    url: str, token: str, task_id: str, names: list[str], worker: Worker, begin: Callable[[], None]
) -> LoadSummary:
    generator = LoadGenerator(url)
    async with generator.open(len(names)):
        devices = await generator.register(token, names)
        await generator.enrol(task_id, devices)
        await asyncio.to_thread(begin)
        return await generator.run(task_id, devices, worker)
