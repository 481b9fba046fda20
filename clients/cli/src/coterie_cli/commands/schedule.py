"""`coterie task schedule`: the cells, devices and models of each round of a multi-task task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from coterie.client import Platform
from coterie.records import Participation, ParticipationState, Plan
from coterie_cli.console import AsJson, Key, Url, connect, show, table

EPILOG = """[bold]Examples[/]

coterie task schedule digits\n
coterie task schedule digits --round 3\n
coterie task schedule digits --device dev_…
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A device in a round: its cell and block, and the model it chose (-1 = none)."""

    round: int
    device_id: str
    state: str
    model: int
    cell: str = ""
    block: int = -1
    upload_seconds: float = 0.0
    noise_multiplier: float = 0.0
    because: str = ""


def schedule(
    task: Annotated[str, typer.Argument(help="Task's id or name.")],
    round: Annotated[int, typer.Option(min=0, help="Round; 0 = the newest.")] = 0,
    device: Annotated[str, typer.Option(help="Show this device in all rounds instead.")] = "",
    url: Url = "",
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Show the schedule of a round: cells, devices, blocks and noise; or the history of one device."""
    with connect(url, key) as platform:
        result = platform.find_task(task)
        last = result.round
        if device:
            entries = device_history(platform, result.id, device)
            title = f"{device} in {result.specification.name}"
        else:
            number = round or last
            entries = round_schedule(platform, result.id, number) if number else []
            title = f"round {number} of {result.specification.name}"
    show(entries, as_json, lambda: table(title, _COLUMNS, [_row(entry) for entry in entries]))


def round_schedule(platform: Platform, task_id: str, number: int) -> list[Entry]:
    """Return all devices of a round."""
    result = platform.round(task_id, number)
    plan = platform.plan(task_id, result.round.plan_version)
    return [_entry(plan, part) for part in result.participations]


def device_history(platform: Platform, task_id: str, device: str) -> list[Entry]:
    """Return every round of one device."""
    versions = {round.number: round.plan_version for round in platform.rounds(task_id)}
    plans: dict[int, Plan] = {}
    entries = []
    for part in platform.participations(task_id, device):
        version = versions[part.round]
        if version not in plans:
            plans[version] = platform.plan(task_id, version)
        entries.append(_entry(plans[version], part))
    return entries


def _entry(plan: Plan, part: Participation) -> Entry:
    assignment = next((assignment for assignment in plan.assignments if assignment.device_id == part.device_id), None)
    cells = [str(cell["id"]) for cell in plan.details.get("cells", [])]
    model = part.model_index if part.state == ParticipationState.DELIVERED else -1
    entry = Entry(part.round, part.device_id, part.state, model)
    if assignment is None:
        return entry
    return replace(
        entry,
        cell=cells[assignment.group] if 0 <= assignment.group < len(cells) else "",
        block=assignment.block,
        upload_seconds=assignment.upload_seconds,
        noise_multiplier=assignment.noise_multiplier,
        because=assignment.because,
    )


_COLUMNS = ["round", "device", "state", "cell", "block", "upload", "noise", "model", "because"]


def _row(entry: Entry) -> list[object]:
    served = entry.cell != ""
    return [
        entry.round,
        entry.device_id,
        entry.state,
        entry.cell or "–",
        entry.block if served else "–",
        f"{entry.upload_seconds:.3f} s" if served else "–",
        f"{entry.noise_multiplier:.3g}" if served else "–",
        entry.model if entry.model >= 0 else "–",
        entry.because,
    ]
