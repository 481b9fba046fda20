"""`coterie fleet`: many simulated devices in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Annotated

import typer

from coterie_cli.console import FAILED, AsJson, Key, Url, connect, err, found_url, show
from coterie_cli.fleet import Fleet, FleetSummary, Member, RandomWorker, Worker

app = typer.Typer(help="Simulated devices over real REST.", no_args_is_help=True)
_EPILOG = """[bold]Examples[/]

coterie fleet run --task digits --devices 100\n
coterie fleet run --task digits --devices 1000 --no-training
"""


@app.command("run", epilog=_EPILOG)
def run(
    task: Annotated[str, typer.Option(help="Task to join, by id or name.")],
    devices: Annotated[int, typer.Option(min=1, max=100_000, help="How many devices.")] = 20,
    training: Annotated[
        bool, typer.Option("--training/--no-training", help="Train on parts of the digits, or send random updates.")
    ] = True,
    owner: Annotated[str, typer.Option(help="Owner of the devices; created if new.")] = "fleet",
    start: Annotated[bool, typer.Option("--start", help="Start the task when all have enrolled.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of data and updates.")] = 0,
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Register devices, enrol them in a task and do their work until it ends. Needs an admin's key."""
    url = url or found_url()
    with connect(url, key) as platform:
        task_id = platform.find_task(task).id
        token = platform.issue_token(platform.create_owner(owner).id, uses=devices).token
        worker: Worker = RandomWorker(seed) if not training else _trainer(devices, seed)

        def begin() -> None:
            if start:
                platform.start_task(task_id)

        summary = asyncio.run(_run(url, token, task_id, devices, worker, begin, as_json))
    text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary.outcomes.items()))
    show(
        asdict(summary),
        as_json,
        lambda: f"task {summary.state}: {text or 'nothing delivered'} in {summary.seconds:.1f} s",
    )
    if summary.state != "finished":
        raise typer.Exit(FAILED)


async def _run(
    url: str, token: str, task_id: str, devices: int, worker: Worker, begin: Callable[[], None], quiet: bool
) -> FleetSummary:
    fleet = Fleet(url)
    async with fleet.open(devices):
        names = [f"simulated-{index + 1:05}" for index in range(devices)]
        members = await fleet.register(token, names)
        members = _with_samples(members, worker)
        await fleet.enrol(task_id, members)
        if not quiet:
            err.print(f"{devices} devices are enrolled")
        await asyncio.to_thread(begin)
        return await fleet.run(task_id, members, worker)


def _trainer(devices: int, seed: int) -> Worker:
    from coterie_cli.fleet_training import DigitsWorker

    return DigitsWorker(devices, seed)


def _with_samples(members: list[Member], worker: Worker) -> list[Member]:
    count = getattr(worker, "samples_of", None)
    return members if count is None else [replace(member, samples=count(member)) for member in members]
