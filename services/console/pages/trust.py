"""Trust: the graph of devices and ties, device profiles, and explanations of ties."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Any

from nicegui import ui

from services.console.components.actions import handler
from services.console.components.blocks import button, card, empty, heading, text, text_element
from services.console.components.charts import palette
from services.console.components.contexts import PageContext
from services.console.components.frame import STAFF, Pages
from services.console.components.network import network, options
from services.console.domain import words
from services.console.domain.graph import Graph, Lens, draw
from services.console.domain.names import Names
from services.console.domain.network import Drawing
from services.console.pages.trust_details import show_device, show_tie
from services.console.wire.platform import Json

DAY = 86_400.0
MOST_DAYS = 90


def add(pages: Pages) -> None:
    pages.add("/trust", "Trust", STAFF, show)


async def show(context: PageContext, task: str = "", device: str = "", peer: str = "") -> None:
    """Draw the page; `device` opens a profile, with `peer` the explanation of their tie."""
    with heading("Trust", "Trust between devices, computed from their interactions."):
        pass
    if not context.is_admin and not task:
        task = await _choose_task(context)
        if not task:
            return
    board = Board(context, task)
    await board.build()
    if device and peer:
        await board.open_tie(device, peer)
    elif device:
        await board.focus(device)


async def _choose_task(context: PageContext) -> str:
    """Let publishers choose one of their tasks; they see the ties among its devices."""
    tasks, _ = await context.platform.page("/v1/tasks", publisher=context.person.subject)
    if not tasks:
        with card(label="Trust"):
            empty(
                "hub",
                "No graph yet.",
                "You see the ties among the devices of your tasks. Publish a task first.",
            )
        return ""
    options = {task["id"]: task["specification"]["name"] for task in tasks}
    select = ui.select(options, value=tasks[0]["id"], label="Devices of the task").props("outlined dense")
    select.on_value_change(lambda: ui.navigate.to(f"/trust?task={select.value}")).style("max-width: 320px")
    return str(tasks[0]["id"])


async def owners_of(context: PageContext) -> dict[str, Json]:
    """Return owners by id; empty for publishers."""
    return await context.app.directory.owners(context.platform) if context.is_admin else {}


class Board:
    """The graph with its controls on the left, details on the right."""

    def __init__(self, context: PageContext, task: str) -> None:
        self._context, self._task = context, task
        self._lens, self._at = Lens(), 0.0
        self._graph: Graph | None = None
        self._names = Names()
        self._chart: ui.echart | None = None

    async def build(self) -> None:
        """Draw the page at once, and the graph when the platform has answered."""
        with ui.element("div").classes("c-split"):
            with card(label="Trust graph") as self._card:
                with ui.element("div").classes("c-row") as self._controls:
                    pass
                self._place = ui.element("div").classes("c-stack")
                with self._place:
                    ui.skeleton(height="520px", animation="fade")
                    text("Loading the graph …", "c-faint c-small")
            with ui.element("div").classes("c-stack") as self._side, card(label="Details"):
                empty(
                    "touch_app",
                    "Select a device or a tie.",
                    "This card then shows its profile or its explanation.",
                )
        await ui.context.client.connected()
        await self._read()
        self._build_controls()
        self._draw()

    async def _read(self, *, fresh: bool = False) -> None:
        context, app = self._context, self._context.app
        graph, owners = await asyncio.gather(
            app.graphs.graph(context.platform, task=self._task, at=self._at, fresh=fresh), owners_of(context)
        )
        self._graph, self._names = graph, Names({device["id"]: dict(device) for device in graph.devices}, owners)

    def _build_controls(self) -> None:
        context = self._context
        with self._controls:
            with ui.element("div").classes("c-find"):
                search = ui.input("Find a device").props("outlined dense clearable debounce=150 autocomplete=off")
                self._hits = ui.element("div").classes("c-hits")
            search.on_value_change(handler(context, lambda event: self._suggest(str(event.value or ""))))
            by = ui.toggle({"community": "Communities", "owner": "Owners"}, value="community").props("no-caps dense")
            by.on_value_change(handler(context, lambda event: self._change(by=event.value, group=-1)))
            with ui.element("label").classes("c-small c-faint").style("flex: 1 1 110px; max-width: 150px"):
                least_text = text("Any trust")
                least = ui.slider(min=0, max=0.95, step=0.05, value=0).props('aria-label="Least trust" debounce=100')
                least.on_value_change(lambda event: least_text.set_text(_least_words(event.value)))
                least.on_value_change(handler(context, lambda event: self._change(least=float(event.value))))
            with ui.element("label").classes("c-small c-faint").style("flex: 1 1 110px; max-width: 150px"):
                self._when = text("Now")
                past = ui.slider(min=-MOST_DAYS, max=0, step=1, value=0).props('aria-label="Days ago"')
                past.on_value_change(lambda event: self._when.set_text(self._when_words(int(event.value))))
                past.on("change", handler(context, lambda: self._travel(int(past.value))), args=[])
            again = ui.button(icon="refresh", on_click=handler(context, self._reload), color=None)
            again.props('flat round dense aria-label="Reload the graph"').tooltip("Reload")

    def _suggest(self, typed: str) -> None:
        assert self._graph is not None
        self._hits.clear()
        result = self._graph.search(typed, most=8)
        with self._hits:
            for number in result:
                hit = text_element("button", self._graph.names[number], "c-peer")
                hit.on("click", handler(self._context, partial(self._open_match, self._graph.ids[number])), args=[])
            if typed and not result:
                text("No device has this name.", "c-faint c-small")

    async def _open_match(self, device_id: str) -> None:
        self._hits.clear()
        await self.focus(device_id)

    def _when_words(self, days: int) -> str:
        return "Now" if not days else f"{words.count(-days, 'day')} ago"

    def _change(self, **changes: Any) -> None:
        self._lens = replace(self._lens, **changes)
        self._draw()

    async def _travel(self, days: int) -> None:
        now = time.time() // 3600 * 3600
        self._at = now + days * DAY if days else 0.0
        await self._read()
        self._draw()

    async def _reload(self) -> None:
        await self._read(fresh=True)
        self._draw()

    def _draw(self) -> None:
        assert self._graph is not None
        names = {owner_id: str(owner["name"]) for owner_id, owner in self._names.owners.items()}
        drawing = draw(self._graph, self._lens, names)
        summary = drawing.summary + ("" if drawing.summary.endswith(".") else ".")
        if self._chart is None or not drawing.nodes:
            self._build_chart(drawing, summary)
        else:  # reuse the chart: faster, without flicker
            self._chart.options.clear()
            self._chart.options.update(options(palette(self._context.dark), drawing))
            self._chart.props["aria-label"] = f"Trust graph: {summary}"
            self._chart.update()
            self._summary.set_text(summary)
        self._all_devices.set_visibility(self._lens.group >= 0 or bool(self._lens.device))

    def _build_chart(self, drawing: Drawing, summary: str) -> None:
        self._place.clear()
        self._chart = None
        with self._place:
            self._all_devices = button("Show all devices", "arrow_back", handler(self._context, self._back))
            if not drawing.nodes:
                empty("hub", "No devices yet.", "Devices appear when they register with an enrolment token.")
                return
            self._chart = network(
                palette(self._context.dark),
                drawing,
                f"Trust graph: {summary}",
                on_node=handler(self._context, self._clicked),
                on_link=handler(self._context, self.open_tie),
            )
            self._summary = text(summary, "c-faint c-small")
            self._summary.props["data-summary"] = ""
            text("Line width shows direct trust. Scroll to zoom, drag to move.", "c-faint c-small")

    def _back(self) -> None:
        self._change(device="", group=-1)

    async def _clicked(self, kind: str, node: str) -> None:
        if kind == "group":
            self._change(group=int(node.partition(":")[2]))
        else:
            await self.focus(node)

    async def focus(self, device_id: str) -> None:
        """Select a device: draw its ties in the graph and its profile beside it."""
        self._change(device=device_id)
        with self._side:
            self._side.clear()
            await show_device(self._context, device_id, self._names, self._graph, self.open_tie)

    async def open_tie(self, a: str, b: str) -> None:
        """Show the explanation of a tie."""
        self._side.clear()
        with self._side:
            await show_tie(self._context, a, b, self._names, self._graph)


def _least_words(value: float) -> str:
    return "Any trust" if not value else f"Trust at least {value:.2f}"
