"""`coterie task alike`: how much users' data have in common, for a survey's parameters. [CAPP] section II."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from coterie_cli.console import AsJson, Key, Mistake, Url, connect, show, table

app = typer.Typer()
_EPILOG = """[bold]Examples[/]

coterie task alike records.csv --low 15 --high 30\n
coterie task alike records.csv --low 15 --high 30 --group dev_a,dev_b,dev_c --group dev_d,dev_e --json

The file's first line holds device ids, every other line their data of one moment.
"""


@app.command("alike", epilog=_EPILOG)
def alike(
    file: Annotated[Path, typer.Argument(help="CSV of records that are nobody's secret, such as published readings.")],
    low: Annotated[float, typer.Option(help="Least answer of the question to be asked.")],
    high: Annotated[float, typer.Option(help="Largest.")],
    group: Annotated[
        list[str], typer.Option(help="Ids of devices whose data are alike, with commas; all by default.")
    ] = [],  # noqa: B006 - typer reads it only
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Estimate w, how much users' data have in common, from public records; the answer goes under "pricing".

    Records should be of moments far apart. Never give private answers: the estimate is told to everybody in the task.
    """
    groups = [[name.strip() for name in names.split(",") if name.strip()] for names in group]
    question = {"records": read_records(file), "low": low, "high": high, "groups": groups}
    with connect(url, key) as platform:
        answer = platform.what_if("similarity", question)
    show(dict(answer), as_json, lambda: _estimates(answer))


def read_records(file: Path) -> dict[str, list[float]]:
    """Records by device id."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            names, *rows = [row for row in csv.reader(lines) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Mistake(f"cannot read {file}: {error}") from error
    if not names or not rows:
        raise Mistake(f"{file} has no records; its first line holds device ids, every other line their data")
    if len(set(names)) < len(names):
        raise Mistake(f"{file} names a device twice in its first line; give each one column")
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise Mistake(f"{file}, record {number}: {len(row)} values for {len(names)} devices; leave gaps out")
    try:
        return {name: [float(row[place]) for row in rows] for place, name in enumerate(names)}
    except ValueError as error:
        raise Mistake(f"{file}: {error}; every value must be a number") from error


def _estimates(answer: Any) -> RenderableType:
    rows = [
        [", ".join(group["devices"]), f"{group['correlation']:.4g}", f"{low:.4g} to {high:.4g}"]
        for group, (low, high) in zip(answer["alike"], answer["intervals"], strict=True)
    ]
    return table(f"from {answer['records']} records", ["devices", "w", "95 % interval"], rows)
