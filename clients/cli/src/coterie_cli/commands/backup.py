"""`coterie backup` and `coterie restore`: a platform in one file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from coterie_cli import archive
from coterie_cli.console import DEFAULT_DATA, AsJson, err, show

BACKUP_EPILOG = """[bold]Examples[/]

coterie backup --out monday.tar        [dim]while the platform runs[/]\n
coterie backup --data /srv/coterie --out /backups/monday.tar\n
COTERIE_DATABASE_URL=postgresql://coterie@db/coterie coterie backup --out monday.tar
"""
RESTORE_EPILOG = """[bold]Examples[/]

coterie restore monday.tar --check     [dim]verify only; writes nothing[/]\n
coterie restore monday.tar --data /srv/coterie
"""
_Database = Annotated[
    str,
    typer.Option(
        "--database-url", envvar="COTERIE_DATABASE_URL", help="PostgreSQL database of the services, as its owner."
    ),
]


def backup(
    out: Annotated[Path, typer.Option("--out", help="File to write; it must not exist.")],
    data: Annotated[Path, typer.Option(help="Folder of the platform's data.")] = DEFAULT_DATA,
    database_url: _Database = "",
    as_json: AsJson = False,
) -> None:
    """Back up databases, admin key and blobs of a running platform into one file.

    Blobs in an object store are not included: copy them with the store's own tools afterwards.
    """
    with err.status("collecting …") as status:
        contents = archive.write(data, out, database_url, status.update)
    show(
        _document(out, contents),
        as_json,
        lambda: f"{out}: {_summary(contents)}. Keep it safe: it contains the admin key.",
    )


def restore(
    file: Annotated[Path, typer.Argument(help="A back-up.", exists=True, dir_okay=False)],
    data: Annotated[Path, typer.Option(help="Folder to restore into; it must be empty or not exist.")] = DEFAULT_DATA,
    check: Annotated[bool, typer.Option("--check", help="Only verify every sum.")] = False,
    database_url: _Database = "",
    as_json: AsJson = False,
) -> None:
    """Verify and unpack a back-up; then start the platform with `coterie up --data`."""
    with err.status("reading …") as status:
        contents = (
            archive.check(file, status.update) if check else archive.restore(file, data, database_url, status.update)
        )
    ending = "is intact" if check else f"is restored into {data}. Start it: coterie up --data {data}"
    show(_document(file, contents), as_json, lambda: f"{file} ({_summary(contents)}) {ending}")


def _document(file: Path, contents: archive.Contents) -> dict[str, object]:
    return {
        "file": str(file),
        "version": contents.version,
        "made_at": contents.made_at,
        "parts": len(contents.sums),
        "blobs": contents.blobs,
        "bytes": contents.bytes,
    }


def _summary(contents: archive.Contents) -> str:
    made = datetime.fromtimestamp(contents.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    files, size = len(contents.sums) - contents.blobs, f"{contents.bytes / 1e6:.1f} MB"
    return f"{files} files and {contents.blobs} blobs, {size}, version {contents.version}, {made}"
