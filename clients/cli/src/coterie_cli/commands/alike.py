"""`coterie task alike`: estimate the correlation of devices' data for a survey's parameters. [CAPP] section II."""

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

The first line of the file holds device ids, each other line their data at one moment.
"""


@app.command("alike", epilog=_EPILOG)
def alike(
    file: Annotated[Path, typer.Argument(help="CSV of public records, such as published readings.")],
    low: Annotated[float, typer.Option(help="Least answer to the question.")],
    high: Annotated[float, typer.Option(help="Greatest answer to the question.")],
    group: Annotated[
        list[str], typer.Option(help="Ids of devices with similar data, separated by commas; all by default.")
    ] = [],  # noqa: B006 - typer reads it only
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Estimate the correlation w of devices' data from public records; put the result under "pricing".

    Use records of moments far apart. Never use private answers: every device of the task receives the estimate.
    """
    groups = [[name.strip() for name in names.split(",") if name.strip()] for names in group]
    question = {"records": read_records(file), "low": low, "high": high, "groups": groups}
    with connect(url, key) as platform:
        answer = platform.what_if("similarity", question)
    show(dict(answer), as_json, lambda: _estimates(answer))


def read_records(file: Path) -> dict[str, list[float]]:
    """Read the records of each device."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            names, *rows = [row for row in csv.reader(lines) if row] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Mistake(f"cannot read {file}: {error}") from error
    if not names or not rows:
        raise Mistake(f"{file} has no records; put device ids into the first line and their data into the others")
    if len(set(names)) < len(names):
        raise Mistake(f"{file} names a device twice in its first line; give each one column")
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise Mistake(
                f"{file}, record {number}: {len(row)} values for {len(names)} devices; remove incomplete lines"
            )
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
