"""The list of tasks."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from coterie.records import Task
from coterie.records.enums import TaskState
from services.console.components.actions import View, handler
from services.console.components.blocks import card, heading, link_button
from services.console.components.contexts import PageContext
from services.console.components.frame import STAFF, Pages
from services.console.components.tables import Column, state_cell, table
from services.console.domain import words

REFRESH_SECONDS = 5.0
MOST_TASKS = 2_000
STATES = {"": "All states", "running": "Running", "created": "Waiting", "finished": "Finished", "failed": "Failed"} | {
    "cancelled": "Cancelled"
}
COLUMNS = (
    Column("name", "Name", "link"),
    Column("state", "State", "chip"),
    Column("rounds", "Rounds", "bar"),
    Column("kind", "Preset"),
    Column("devices", "Devices", "number"),
    Column("escrow", "Escrow, credits", "number"),
    Column("created", "Created"),
    Column("publisher", "Publisher"),
    Column("reason", "Reason", wrap=True),
)
NOTHING = ("model_training", "No tasks yet.", "Publish one with “New task”, or with `coterie task create`.")


def add(pages: Pages) -> None:
    pages.add("/tasks", "Tasks", STAFF, show)


async def show(context: PageContext, state: str = "") -> None:
    chosen = {"state": state if state in STATES else ""}
    with heading("Tasks", "All published tasks." if context.is_admin else "Your tasks."):
        link_button("New task", "add", "/tasks/new", "c-primary")
    with card(label="Tasks"):
        select = ui.select(STATES, value=chosen["state"], label="State").props("dense outlined").style("width: 180px")
        listing: View[list[Task]] = View(
            context,
            lambda: read(context, chosen["state"]),
            lambda tasks: draw(context, tasks),
            every_seconds=REFRESH_SECONDS,
        )
        await listing.refresh()

    async def choose() -> None:
        chosen["state"] = str(select.value)
        await listing.refresh()

    select.on_value_change(handler(context, choose))


async def read(context: PageContext, state: str) -> list[Task]:
    """Return the newest tasks in a state."""
    own = {} if context.is_admin else {"publisher": context.person.subject}
    return await context.platform.read_all(Task, "/v1/tasks", most=MOST_TASKS, state=state, **own)


def draw(context: PageContext, tasks: list[Task]) -> None:
    columns = [item for item in COLUMNS if context.is_admin or item.name != "publisher"]
    table(
        columns,
        [row_of(context, task) for task in tasks],
        label="Tasks",
        nothing=NOTHING,
        search=len(tasks) > 5,
        csv_name="tasks.csv",
    )


def row_of(context: PageContext, task: Task) -> dict[str, Any]:
    """Return a task as a table row."""
    spec = task.specification
    done = task.round if task.state is TaskState.FINISHED else max(0, task.round - 1)
    return {
        "id": task.id,
        "name": spec.name,
        "name_href": f"/tasks/{task.id}",
        **state_cell("state", task.state, words.STATE_WORDS.get(task.state, "")),
        "rounds": f"{done} / {spec.rounds}",
        "rounds_share": done / spec.rounds,
        "rounds_sort": done,
        "kind": spec.preset or f"{spec.topology}, {spec.privacy}, {spec.incentive}",
        "devices": task.enrolled,
        "escrow": words.credits(spec.escrow_microcredits) if spec.escrow_microcredits else "–",
        "escrow_sort": spec.escrow_microcredits / words.MICRO,
        "created": context.moment(task.created_at),
        "created_sort": task.created_at,
        "publisher": words.short(task.publisher),
        "publisher_sort": task.publisher,
        "reason": task.reason,
    }
