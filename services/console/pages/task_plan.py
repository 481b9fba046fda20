"""A task's plan: drawn over the trust graph, and as a table of assignments."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import ui

from coterie.errors import CoterieError, NotFound
from coterie.records import Cell
from services.console.components.actions import handler
from services.console.components.blocks import card, empty, facts, note, text_element
from services.console.components.charts import palette
from services.console.components.contexts import PageContext
from services.console.components.network import network
from services.console.components.tables import Column, table
from services.console.components.task_watch import Watch
from services.console.domain import words
from services.console.domain.graph import Graph
from services.console.domain.names import Names
from services.console.domain.plans import LEGENDS, describe_move, draw_plan, noise_words, stations_of
from services.console.wire.platform import Json

COLUMNS = (
    Column("name", "Device", "link"),
    Column("role", "Role"),
    Column("place", "Place"),
    Column("noise", "Noise"),
    Column("payoff", "Payoff", "number"),
    Column("because", "Why", wrap=True),
)


CELL_COLUMNS = (
    Column("cell", "Cell"),
    Column("served", "Blocks in use", "number"),
    Column("explanation", "In this plan", wrap=True),
    Column("now", "Now"),
)


async def show(context: PageContext, watch: Watch, names: Names) -> None:
    """Draw the newest plan, and redraw when a new one arrives."""
    place = ui.element("div").classes("c-stack").style("gap: var(--gap)")
    shown = {"version": -1}

    async def draw() -> None:
        version = max((item.plan_version for item in watch.rounds.values()), default=0)
        if version == shown["version"]:
            return
        shown["version"] = version
        plan, graph = await asyncio.gather(_plan(context, watch), _graph(context, watch))
        stations = (
            await _cells_with_station(context) if plan is not None and plan["topology"] == "cells" else frozenset()
        )
        place.clear()
        with place:
            _draw(context, watch, names, plan=plan, graph=graph, stations=stations)

    await draw()
    watch.listeners.append(lambda: ui.timer(0.01, quiet_handler(draw), once=True) if not place.is_deleted else None)


def quiet_handler(act: Any) -> Any:
    """Wrap an automatic refresh: it ignores errors, because the header of the page shows them."""

    async def handle() -> None:
        try:
            await act()
        except CoterieError:
            return

    return handle


async def _plan(context: PageContext, watch: Watch) -> Json | None:
    try:
        return await context.platform.plan(watch.id)
    except NotFound:
        return None


async def _graph(context: PageContext, watch: Watch) -> Graph | None:
    return await context.app.graphs.graph(context.platform, task=watch.id)


async def _cells_with_station(context: PageContext) -> frozenset[str]:
    """Return the cells that a station serves now."""
    result = (await context.platform.get("/v1/cells"))["items"]
    return frozenset(cell.id for cell in map(Cell.from_json, result) if cell.station)


def _cells(plan: Json, stations: frozenset[str]) -> None:
    with card("Cells", "Either its station or the planner decides which devices a cell serves."):
        table(
            CELL_COLUMNS,
            [
                {
                    "cell": row.cell,
                    "served": f"{row.served} of {row.blocks}",
                    "served_sort": row.served,
                    "explanation": row.explanation,
                    "now": "a station serves it" if row.cell in stations else "no station",
                }
                for row in stations_of(plan)
            ],
            key="cell",
            label="Cells",
            nothing=("cell_tower", "The plan has no cells.", "Register one with `coterie cells put`."),
        )


def _draw(
    context: PageContext, watch: Watch, names: Names, plan: Json | None, graph: Graph | None, stations: frozenset[str]
) -> None:
    if plan is None:
        with card(label="Plan"):
            empty(
                "hub",
                "No plan yet.",
                "The planner creates it when the first round opens, from the joined devices and their trust.",
            )
        return
    known = {item["device_id"]: names.device(item["device_id"]) for item in plan["assignments"]}
    drawing = draw_plan(plan, graph, known)
    with card("Exchanges", f"Plan {plan['version']}: {drawing.summary}."):
        network(
            palette(context.dark),
            drawing,
            f"Plan: {drawing.summary}",
            on_node=handler(context, lambda kind, node: ui.navigate.to(f"/trust?device={node}&task={watch.id}")),
            on_link=handler(context, lambda a, b: ui.navigate.to(f"/trust?device={a}&peer={b}&task={watch.id}")),
            height=520,
        )
        _legend(plan["topology"])
    _verdict(plan, names)
    if plan["topology"] == "cells":
        _cells(plan, stations)
    with card("Assignments", "The role of each device, and the reason."):
        table(
            COLUMNS,
            [_row(assignment, names) for assignment in plan["assignments"]],
            key="device",
            label="Assignments",
            nothing=("hub", "The plan is empty.", "No device takes part."),
            search=len(plan["assignments"]) > 8,
            csv_name=f"plan-{watch.spec.name}.csv",
        )


def _legend(topology: str) -> None:
    with ui.element("div").classes("c-legend"):
        for mark, meaning in LEGENDS.get(topology, LEGENDS["star"]):
            with ui.element("span"):
                ui.element("i").classes(f"m-{mark}")
                text_element("span", meaning)


def _verdict(plan: Json, names: Names) -> None:
    details = plan["details"]
    if "stable" in details:
        if details["stable"]:
            gain = details.get("mean_payoff", 0.0) - details.get("mean_solo_payoff", 0.0)
            note(
                "verified",
                "Individually stable: no device gains by a move that the receiving cluster accepts. "
                f"The mean payoff is {gain:.2f} above the one without clusters.",
                "good",
            )
        else:
            note("warning", f"Not individually stable: {describe_move(details['blocking'], names)}.", "warn")
    if details.get("instead"):
        note("warning", f"This round uses matching instead of the policy: {details['instead']}.", "warn")
    rows = [
        (label, words.number(details[key]))
        for key, label in (
            ("hitting_time", "Hitting time of the mesh, steps"),
            ("pseudo_training_time", "Pseudo training time, s"),
            ("dp_budget", "Devices that may add noise"),
            ("reward", "Reward of the schedule"),
        )
        if isinstance(details.get(key), int | float)
    ]
    if plan["round_seconds"]:
        rows.append(("Expected round duration", words.span(plan["round_seconds"])))
    baselines = details.get("baselines") or {}
    rows += [
        (
            f"Baseline: {name} mesh",
            f"{words.number(item['pseudo_training_time'])} s, {item['noised']:.0f} devices noised"
            + (f"; not chosen: {item['why_not']}" if item.get("why_not") else ""),
        )
        for name, item in baselines.items()
    ]
    if rows:
        with card("Planner metrics"):
            facts(rows)


def _row(assignment: Json, names: Names) -> dict[str, Any]:
    return {
        "device": assignment["device_id"],
        "name": names.device(assignment["device_id"]),
        "name_href": f"/trust?device={assignment['device_id']}",
        "role": assignment["role"],
        "place": _place(assignment, names),
        "noise": noise_words(assignment),
        "noise_sort": assignment["noise_multiplier"],
        "payoff": words.number(assignment["payoff"]) if assignment["payoff"] else "–",
        "payoff_sort": assignment["payoff"],
        "because": assignment["because"],
    }


def _place(assignment: Json, names: Names) -> str:
    if assignment["neighbours"]:
        return words.count(len(assignment["neighbours"]), "neighbour")
    if assignment["block"] >= 0:
        cell = assignment.get("cell") or f"cell {assignment['group'] + 1}"
        return f"{cell}, block {assignment['block']}"
    if assignment["head_device_id"]:
        return f"cluster of {names.device(assignment['head_device_id'])}"
    return "–"
