"""`coterie blobs`: stored models, updates and letters."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show

app = typer.Typer(help="Clean up stored models, updates and letters.", no_args_is_help=True)
_EPILOG = """[bold]Examples[/]

coterie blobs sweep --dry-run          [dim]show what would be removed[/]\n
coterie blobs sweep --older-than 7d
"""
_AGE = re.compile(r"^(\d{1,6})([smhd])$")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(older_than: str) -> float:
    """Parse an age such as 30m, 24h or 7d into seconds."""
    age = _AGE.match(older_than)
    if age is None:
        raise Mistake(f"--older-than must be a number and s, m, h or d, such as 24h, not {older_than!r}")
    return float(int(age[1]) * _SECONDS[age[2]])


@app.callback()
def _blobs() -> None:
    """Clean up stored models, updates and letters."""


@app.command("sweep", epilog=_EPILOG)
def sweep(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    older_than: Annotated[str, typer.Option(help="Keep younger blobs: 30m, 24h, 7d; at least 10m.")] = "24h",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Remove blobs that no task, round, letter, upload or policy refers to."""
    seconds = seconds_of(older_than)
    if seconds < 600:
        raise Mistake(
            f"--older-than must be at least 10m, not {older_than}: a round in progress may still need younger blobs"
        )
    with connect(url, key) as platform:
        result = platform.sweep_blobs(dry_run=dry_run, older_than_seconds=seconds)
    outcome = "would be removed" if dry_run else f"are orphans; {result.removed} removed"
    size = f"{result.orphan_bytes / 1e6:.1f} MB"
    show(result, as_json, lambda: f"{result.orphans} of {result.seen} blobs, {size}, {outcome}")
