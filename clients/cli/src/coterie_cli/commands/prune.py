"""`coterie prune`: delete details of old tasks."""

from __future__ import annotations

from typing import Annotated

import typer

from coterie_cli.commands.blobs import seconds_of
from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show

EPILOG = """[bold]Examples[/]

coterie prune --dry-run                [dim]show what would be deleted[/]\n
coterie prune --older-than 30d\n
coterie prune --task digits --older-than 1d
"""


def prune(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    older_than: Annotated[
        str, typer.Option(help="Keep tasks that ended later than this: 24h, 90d; at least 1h.")
    ] = "90d",
    task: Annotated[str, typer.Option(help="This task alone, by id or name.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Delete the participations and event logs of tasks that ended long ago.

    Tasks, rounds with their metrics, models, payments, privacy charges, trust and the audit log stay.
    """
    seconds = seconds_of(older_than)
    if seconds < 3600:
        raise Mistake(f"--older-than must be at least 1h, not {older_than}: devices may still ask about the task")
    with connect(url, key) as platform:
        task_id = platform.find_task(task).id if task else ""
        result = platform.prune_tasks(dry_run=dry_run, older_than_seconds=seconds, task_id=task_id)
    outcome = "would be deleted" if dry_run else "deleted"
    rows = f"{result.participations} participations, {result.events} events, {result.others} other rows"
    show(result, as_json, lambda: f"{result.tasks} tasks: {rows} and {result.blobs} blobs {outcome}")
