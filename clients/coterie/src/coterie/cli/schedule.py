"""`coterie task schedule`: which cell served whom in each round of a multi-task task, and who chose which model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from coterie.cli.console import AsJson, Key, Url, connect, show, table
from coterie.client import Platform

EPILOG = """[bold]Examples[/]

coterie task schedule digits\n
coterie task schedule digits --round 3\n
coterie task schedule digits --device dev_…
"""


def schedule(
    task: Annotated[str, typer.Argument(help="Task's id or name.")],
    round: Annotated[int, typer.Option(min=0, help="Which round; 0 = the newest.")] = 0,
    device: Annotated[str, typer.Option(help="One device through all rounds: its identity history.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show whom the cells served in a round, on which block, with how much noise; or one device's history."""
    with connect(url, key) as platform:
        found = platform.find_task(task)
        last = found["round"]
        if device:
            rows = [_entry(platform, found["id"], number, device) for number in range(1, last + 1)]
            entries = [entry for entry in rows if entry is not None]
            title = f"{device} in {found['specification']['name']}"
        else:
            number = round or last
            entries = round_schedule(platform, found["id"], number) if number else []
            title = f"round {number} of {found['specification']['name']}"
    show(entries, as_json, lambda: table(title, _COLUMNS, [_row(entry) for entry in entries]))


def round_schedule(platform: Platform, task_id: str, number: int) -> list[dict[str, Any]]:
    """Everybody in a round with their seat and the model they chose (-1 = none)."""
    found = platform.round(task_id, number)
    plan = platform.plan(task_id, found["round"]["plan_version"])
    seats = {seat["device_id"]: seat for seat in plan["seats"]}
    cells = [cell["id"] for cell in plan["details"].get("cells", [])]
    entries = []
    for part in found["participations"]:
        seat = seats.get(part["device_id"], {})
        group = seat.get("group", -1)
        entries.append(
            {
                "round": number,
                "device_id": part["device_id"],
                "state": part["state"],
                "cell": cells[group] if 0 <= group < len(cells) else "",
                "block": seat.get("block", -1),
                "upload_seconds": seat.get("upload_seconds", 0.0),
                "noise_multiplier": seat.get("noise_multiplier", 0.0),
                "model": part["model_index"] if part["state"] == "delivered" else -1,
                "because": seat.get("because", ""),
            }
        )
    return entries


def _entry(platform: Platform, task_id: str, number: int, device: str) -> dict[str, Any] | None:
    entries = round_schedule(platform, task_id, number)
    return next((entry for entry in entries if entry["device_id"] == device), None)


_COLUMNS = ["round", "device", "state", "cell", "block", "upload", "noise", "model", "because"]


def _row(entry: dict[str, Any]) -> list[object]:
    served = entry["cell"] != ""
    return [
        entry["round"],
        entry["device_id"],
        entry["state"],
        entry["cell"] or "–",
        entry["block"] if served else "–",
        f"{entry['upload_seconds']:.3f} s" if served else "–",
        f"{entry['noise_multiplier']:.3g}" if served else "–",
        entry["model"] if entry["model"] >= 0 else "–",
        entry["because"],
    ]
