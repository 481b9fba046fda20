"""Privacy: the ε that each device has reported, and what it protects."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui

from services.console.components.actions import handler
from services.console.components.blocks import card, empty, facts, grid, heading, link, note, text, tile
from services.console.components.charts import bars, chart, palette
from services.console.components.contexts import PageContext
from services.console.components.frame import ADMINS, Pages
from services.console.components.tables import Column, table
from services.console.domain import words
from services.console.domain.limits import DEFAULT_LIMIT, share_of_limit
from services.console.domain.names import Names
from services.console.domain.visibility import promise, who_sees
from services.console.wire.platform import Json

MOST_DEVICES = 500
MOST_BARS = 25
NOT_COUNTED = (
    "Devices report these charges with noised releases. No ε includes updates sent without noise to a trusted head "
    "or neighbour; the device's own ledger lists them (`coterie privacy show`). An owner's limit stays on the device: "
    "the platform learns of it when the device declines work. Shares refer to the default limit, "
    f"ε = {DEFAULT_LIMIT.epsilon:g} at δ = {words.number(DEFAULT_LIMIT.delta)}, for replacing one example."
)
COLUMNS = (
    Column("name", "Device", "link"),
    Column("owner", "Owner"),
    Column("here", "ε in this task", "number"),
    Column("rounds", "Rounds charged", "number"),
    Column("unit", "Protects"),
    Column("all", "ε over all tasks", "number"),
    Column("near", f"Of ε = {DEFAULT_LIMIT.epsilon:g}", "bar"),
    Column("words", "Strength", wrap=True),
)


def add(pages: Pages) -> None:
    pages.add("/privacy", "Privacy", ADMINS, show)


async def show(context: PageContext, device: str = "", task: str = "") -> None:
    """Draw the page for all devices of a task, or for one device."""
    with heading("Privacy", "What devices have spent, and what stays protected."):
        pass
    names = await context.app.directory.names(context.platform, fresh_seconds=60.0)
    if device:
        await _one_device(context, device, names)
        return
    tasks = await context.platform.all("/v1/tasks", most=1_000)
    if not tasks:
        with card(label="Privacy"):
            empty("shield", "No charges yet.", "Charges appear when devices deliver noised updates of a task.")
        return
    chosen = next((item for item in tasks if item["id"] == task), tasks[0])
    options = {item["id"]: f"{item['specification']['name']} ({item['state']})" for item in tasks}
    with card(label="Task"):
        select = ui.select(options, value=chosen["id"], label="Task", with_input=True).props("outlined dense")
        select.style("max-width: 420px")
        place = ui.element("div").classes("c-stack").style("gap: var(--gap)")

    async def draw() -> None:
        result = next(task for task in tasks if task["id"] == select.value)
        place.clear()
        with place:
            await _task(context, result, names)

    await draw()
    select.on_value_change(handler(context, draw))


async def _task(context: PageContext, task: Json, names: Names) -> None:
    enrolments = await context.platform.all(f"/v1/tasks/{task['id']}/enrolments", most=MOST_DEVICES)
    devices = [enrolment["device_id"] for enrolment in enrolments]
    reports, at_limit = await asyncio.gather(
        context.app.reports.of(context.platform, devices),
        context.app.reports.of(context.platform, devices, DEFAULT_LIMIT.delta),
    )
    rows = [_row(task, *pair, names) for pair in zip(reports, at_limit, strict=True)]
    text(promise(task["specification"]))
    facts(who_sees(task["specification"]))
    charged = [row for row in rows if row["rounds"]]
    finite = sorted((item for item in charged if item["here"] not in ("–", "∞")), key=lambda item: -item["here_sort"])
    if finite:
        top = finite[:MOST_BARS]
        options = bars(
            palette(context.dark),
            [item["name"] for item in top],
            [round(item["here_sort"], 3) for item in top],
            unit=f"ε in this task at δ = {words.number(reports[0]['delta'])}",
        )
        chart(options, "ε spent in this task by device", height=70 + 24 * len(top))
    elif rows:
        note("info", "No device has reported a charge in this task.")
    table(
        COLUMNS,
        rows,
        key="device",
        label="Privacy by device",
        nothing=("group_add", "No device has joined this task.", "Charges appear when devices deliver."),
        search=len(rows) > 12,
        csv_name=f"privacy-{task['specification']['name']}.csv",
    )
    text(NOT_COUNTED, "c-faint c-small")


def _row(task: Json, report: Json, at_limit: Json, names: Names) -> dict[str, Any]:
    share = share_of_limit(at_limit)
    here = next((item for item in report["tasks"] if item["task_id"] == task["id"]), None)
    device = names.devices.get(report["device_id"], {})
    spent = words.figure(here["epsilon"]) if here else None
    return {
        "device": report["device_id"],
        "name": names.device(report["device_id"]),
        "name_href": f"/privacy?device={report['device_id']}",
        "owner": names.owner(device.get("owner_id", "")),
        "here": words.number(spent) if here else "–",
        "here_sort": spent if spent is not None else 0.0,
        "rounds": here["rounds"] if here else 0,
        "unit": words.UNIT_WORDS.get(here["unit"], here["unit"]) if here else "–",
        "all": words.number(report["epsilon"]),
        "all_sort": words.figure(report["epsilon"]) or 0.0,
        "near": words.percent(share) if share else "–",
        "near_sort": share,
        "near_share": min(1.0, share),
        "words": words.strength(report["epsilon"]) if report["tasks"] else "no charge reported",
    }


async def _one_device(context: PageContext, device_id: str, names: Names) -> None:
    report = await context.platform.get(f"/v1/privacy/{device_id}")
    result = await asyncio.gather(*(context.platform.task(item["task_id"]) for item in report["tasks"]))
    tasks = {item["id"]: item for item in result}
    link("All devices", "/privacy")
    with grid(220, even=True):
        tile(
            "Device", names.device(device_id), f"of {names.owner(names.devices.get(device_id, {}).get('owner_id', ''))}"
        )
        tile("ε over all tasks", words.number(report["epsilon"]), f"at δ = {words.number(report['delta'])}")
        tile("Tasks", str(len(report["tasks"])), "with a charge")
    note("shield", f"{words.strength(report['epsilon'])[:1].upper()}{words.strength(report['epsilon'])[1:]}.")
    for entry in report["tasks"]:
        task = tasks[entry["task_id"]]
        with card(task["specification"]["name"]):
            link("Open the task", f"/tasks/{task['id']}")
            unit = words.UNIT_WORDS.get(entry["unit"], entry["unit"])
            facts(
                [
                    ("ε in this task", words.epsilon(entry["epsilon"])),
                    ("Rounds charged", str(entry["rounds"])),
                    ("Protects", unit),
                    *who_sees(task["specification"]),
                ]
            )
    if not report["tasks"]:
        with card(label="Privacy"):
            empty("shield", "No charges yet.", "Charges appear when the device delivers a noised update.")
    text(NOT_COUNTED, "c-faint c-small")
