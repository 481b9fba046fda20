"""Publish a task: preset, choices, their consequences, and the initial model."""

from __future__ import annotations

from typing import Any

import numpy as np
from nicegui import events, ui
from safetensors.numpy import save

from coterie.errors import InvalidRequest
from services.console.components.actions import handler, sentence
from services.console.components.blocks import button, card, facts, heading, note, text, text_element
from services.console.components.charts import palette
from services.console.components.contexts import PageContext
from services.console.components.forms import control
from services.console.components.frame import STAFF, Pages
from services.console.components.network import network
from services.console.domain.consequences import MOST_WHAT_IF, consequences, plan_of, what_if_clusters
from services.console.domain.fields import Field
from services.console.domain.plans import draw_plan
from services.console.domain.presets import (
    BY_NAME,
    PRESETS,
    Preset,
    Spec,
    axes_of,
    joining,
    merged,
    shown,
    specification,
)
from services.console.domain.visibility import who_sees
from services.console.wire.platform import Json

MOST_MODEL_BYTES = 256 << 20
NAME = Field("name", "Name", ("name",), kind="text", default="", hint="Devices join by this name.", required=True)
ABOUT = Field(
    "description",
    "Description",
    ("description",),
    kind="text",
    default="",
    hint="Owners read this before joining.",
)

WHO = {"open": "Any device", "owners": "Devices of certain owners", "devices": "Certain devices"}
JOIN = Field(
    "join_by",
    "Who may join",
    ("join_by",),
    kind="choice",
    default="open",
    hint="Only these devices see the task.",
    options=WHO,
)
INVITED = Field(
    "invited", "Their ids", ("invited",), kind="text", default="", hint="own_… or dev_…; empty if any device may join."
)
NAMING = (NAME, ABOUT, JOIN, INVITED)


def add(pages: Pages) -> None:
    pages.add("/tasks/new", "New task", STAFF, show)


async def show(context: PageContext, preset: str = "fedavg") -> None:
    with heading("New task", "Choose a strategy and see the consequences before the task starts."):
        pass
    contract = (await context.platform.contract())["components"]["schemas"]["NewTask"]["properties"]
    own = {} if context.is_admin else {"publisher": context.person.subject}
    tasks, _ = await context.platform.page("/v1/tasks", limit=50, **own)
    form = Form(context, contract, tasks)
    form.build(preset if preset in BY_NAME else "fedavg")


class Form:
    """The form and the consequences of its choices."""

    def __init__(self, context: PageContext, contract: Json, tasks: list[Json]) -> None:
        self._context, self._contract, self._tasks = context, contract, tasks
        self._values: dict[str, Any] = {}
        self._controls: list[Any] = []
        self._uploaded: dict[str, str] = {}
        self._fields: list[str] = []

    @property
    def _preset(self) -> Preset:
        return BY_NAME[str(self._kind.value)]

    def build(self, preset: str) -> None:
        """Draw the form for a preset."""
        with ui.element("div").classes("c-split"):
            with ui.element("div").classes("c-stack").style("gap: var(--gap)"):
                with card("Strategy"):
                    self._kind = ui.radio({item.name: item.title for item in PRESETS}, value=preset).props("inline")
                    self._about = text(BY_NAME[preset].about, "c-faint")
                with card("Name and access"):
                    self._naming = ui.element("div").classes("c-grid").style("--least: 240px")
                with card("Choices"):
                    self._place = ui.element("div").classes("c-grid").style("--least: 220px")
                    self._auto = ui.checkbox("Start automatically when enough devices have joined", value=True)
                with card("Initial model"):
                    self._models = ui.element("div").classes("c-stack")
                with card("Advanced", "Further keys of the specification as JSON; they override the choices above."):
                    self._more = ui.textarea(placeholder='{"max_attempts": 5, "parameters": {"topology": {}}}')
                    self._more.props('outlined dense autogrow debounce=400 aria-label="Further keys as JSON"')
                    self._more.on_value_change(self._changed)
            with ui.element("div").classes("c-stack c-sticky").style("gap: var(--gap)"):
                self._meaning = ui.element("div").classes("c-stack").style("gap: var(--gap)")
                self._problem = ui.element("div")
                button("Publish the task", "publish", handler(self._context, self._publish), "c-primary")
        with self._naming:
            self._named = [control(item, self._values, self._contract, self._changed) for item in NAMING]
        self._kind.on_value_change(self._switch)
        self._switch()

    def _switch(self) -> None:
        """Show the fields and models of another preset; values of shared fields stay."""
        self._about.set_text(self._preset.about)
        for field in self._preset.fields:
            self._values[field.key] = field.default
        self._draw_fields()
        self._draw_models()
        self._changed()

    def _draw_fields(self) -> None:
        self._place.clear()
        fields = shown(self._preset, self._values)
        self._fields = [field.key for field in fields]
        with self._place:
            self._controls = [control(field, self._values, self._contract, self._changed) for field in fields]

    def _draw_models(self) -> None:
        self._models.clear()
        with self._models:
            if not self._preset.models:
                text("A survey needs no initial model.", "c-faint")
                return
            several = self._preset.models > 1
            wanted = "two or more safetensors files, one per model" if several else "a safetensors file"
            text(f"Upload {wanted}, or continue from an earlier task.", "c-faint")
            upload = ui.upload(
                label="Safetensors file", auto_upload=True, multiple=several, max_file_size=MOST_MODEL_BYTES
            ).props("accept=.safetensors flat bordered")
            upload.on_upload(handler(self._context, self._take))
            upload.on_rejected(lambda: ui.notify("Upload a .safetensors file of at most 256 MiB.", type="negative"))
            ended = {
                task["id"]: f"{task['specification']['name']} (version of round {task['round']})"
                for task in self._tasks
                if task["model_digests"] and task["specification"]["preset"] != "survey"
            }
            self._reuse = ui.select({"": "–"} | ended, value="", label="Or the newest model of").props("outlined dense")
            self._upload_status = text("", "c-faint c-small")

    async def _take(self, event: events.UploadEventArguments) -> None:
        content = await event.file.read()
        self._uploaded[event.file.name] = await self._context.platform.upload_model(content)
        self._upload_status.set_text("Uploaded: " + ", ".join(self._uploaded))

    def _changed(self) -> None:
        if self._fields and [item.key for item in shown(self._preset, self._values)] != self._fields:
            self._draw_fields()
        self._meaning.clear()
        with self._meaning:
            try:
                spec = self._spec()
                meanings = consequences(spec)
            except (ValueError, ArithmeticError, TypeError) as error:
                note("edit", f"Incomplete: {error}", "warn")
                return
            with card("Consequences"):
                for what, explanation in meanings:
                    with ui.element("div"):
                        text_element("h3", what)
                        text(explanation)
            with card("Who can see what"):
                facts(who_sees(axes_of(spec)))
            if self._preset.name == "clusters" and self._context.is_admin:
                with card("First clusters", "If all active devices joined, with today's trust."):
                    self._clusters = ui.element("div").classes("c-stack")
                    button("Ask the planner", "hub", handler(self._context, lambda: self._ask_planner(spec)))

    async def _ask_planner(self, spec: Spec) -> None:
        graph = await self._context.app.graphs.graph(self._context.platform)
        chosen = [number for number, item in enumerate(graph.devices) if item["state"] == "active"][:MOST_WHAT_IF]
        answer = await self._context.platform.what_if("clusters", what_if_clusters(graph, spec, chosen))
        names = dict(zip(graph.ids, graph.names, strict=True))
        drawing = draw_plan(plan_of(answer, graph, chosen), None, names)
        self._clusters.clear()
        with self._clusters:
            network(palette(self._context.dark), drawing, f"Planned clusters: {drawing.summary}", height=320)
            payoff = sum(answer["payoff"]) / max(1, len(answer["payoff"]))
            text(f"{drawing.summary}. Mean payoff {payoff:.2f} points.", "c-small")
            if len(chosen) == MOST_WHAT_IF:
                text(f"Computed for the first {MOST_WHAT_IF} devices only.", "c-faint c-small")

    def _spec(self) -> Spec:
        name, about = str(self._values.get("name") or "").strip(), str(self._values.get("description") or "").strip()
        made = specification(self._preset, name, about, self._values, auto_start=bool(self._auto.value))
        made |= joining(str(self._values.get("join_by") or "open"), str(self._values.get("invited") or ""))
        return merged(made, str(self._more.value or ""))

    async def _publish(self) -> None:
        self._problem.clear()
        if [item for item in (*self._named, *self._controls) if not item.validate()]:  # validates every field
            with self._problem:
                note("edit", "Some fields are invalid; see the messages next to them.", "warn")
            return
        try:
            spec = self._spec()
            spec["model_digests"] = await self._digests()
            task = await self._context.platform.create_task(spec)
        except (ValueError, InvalidRequest) as error:
            with self._problem:
                note("error", sentence(error), "bad")
            return
        ui.navigate.to(f"/tasks/{task['id']}")

    async def _digests(self) -> list[str]:
        if not self._preset.models:
            return [await self._context.platform.upload_model(save({"value": np.zeros(1)}))]
        if self._uploaded:
            return list(self._uploaded.values())
        task = next((item for item in self._tasks if item["id"] == self._reuse.value), None)
        if task is None:
            raise ValueError("upload an initial model, or choose an earlier task")
        return list(task["model_digests"])
