"""`coterie prune`: details of tasks that ended long ago are forgotten."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie_cli.commands.blobs import seconds_of
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show

EPILOG = """[bold]Examples[/]

coterie prune --dry-run                [dim]what would go[/]\n
coterie prune --older-than 30d\n
coterie prune --task digits --older-than 1d
"""


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    older_than: Annotated[
        str, typer.Option(help="Tasks that ended less long ago stay: 24h, 90d; at least 1h.")
    ] = "90d",
    task: Annotated[str, typer.Option(help="This task alone, by id or name.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Forget what each device did in each round of tasks that ended long ago, and their event logs.

    Tasks, rounds with their figures, models, payments, privacy charges, trust and the audit log stay.
    """
    seconds = seconds_of(older_than)
    if seconds < 3600:
        raise Mistake(f"--older-than must be at least 1h, not {older_than}: the task may still be asked about")
    with connect(url, key) as platform:
        task_id = platform.find_task(task).id if task else ""
        result = platform.prune_tasks(dry_run=dry_run, older_than_seconds=seconds, task_id=task_id)
    went = "would go" if dry_run else "went"
    rows = f"{result.participations} parts in rounds, {result.events} events, {result.others} other rows"
    show(result, as_json, lambda: f"of {result.tasks} tasks {rows} and {result.blobs} blobs {went}")
