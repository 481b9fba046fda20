"""Publishing a task: a preset, the choices that alert, what they mean, and the model to begin with."""

from __future__ import annotations

from typing import Any

import numpy as np
from nicegui import events, ui
from safetensors.numpy import save

from coterie.errors import InvalidRequest
from services.console.components.actions import handler, sentence
from services.console.components.blocks import button, card, facts, heading, note, say, text
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
NAME = Field("name", "Name", ("name",), "text", "", "Devices join by it.", required=True)
ABOUT = Field("description", "Description", ("description",), "text", "", "What a device's owner reads before joining.")

WHO = {"open": "Any device", "owners": "Devices of certain owners", "devices": "Certain devices"}
JOIN = Field("join_by", "Who may join", ("join_by",), "choice", "open", "Only they see the task.", options=WHO)
INVITED = Field("invited", "Their ids", ("invited",), "text", "", "own_… or dev_…; none if any device may join.")
NAMING = (NAME, ABOUT, JOIN, INVITED)


def add(pages: Pages) -> None:
    """Registers the page."""
    pages.add("/tasks/new", "New task", STAFF, show)


async def show(context: PageContext, preset: str = "fedavg") -> None:
    """Draws the page."""
    with heading("New task", "Choose a strategy; see what your choices mean before anything starts."):
        pass
    contract = (await context.platform.contract())["components"]["schemas"]["NewTask"]["properties"]
    own = {} if context.is_admin else {"publisher": context.person.subject}
    tasks, _ = await context.platform.page("/v1/tasks", limit=50, **own)
    form = Form(context, contract, tasks)
    form.build(preset if preset in BY_NAME else "fedavg")


class Form:
    """The form and what its choices mean."""

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
        """Draws everything for a preset."""
        with ui.element("div").classes("c-split"):
            with ui.element("div").classes("c-stack").style("gap: var(--gap)"):
                with card("Strategy"):
                    self._kind = ui.radio({item.name: item.title for item in PRESETS}, value=preset).props("inline")
                    self._about = text(BY_NAME[preset].about, "c-faint")
                with card("What it is called"):
                    self._naming = ui.element("div").classes("c-grid").style("--least: 240px")
                with card("Choices"):
                    self._place = ui.element("div").classes("c-grid").style("--least: 220px")
                    self._auto = ui.checkbox("Start by itself as soon as enough devices have joined", value=True)
                with card("Model to begin with"):
                    self._models = ui.element("div").classes("c-stack")
                with card(
                    "Anything else", "Further keys of the specification as JSON; they are put over the choices above."
                ):
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
        """Another preset: its own fields, its own models; values of fields both have stay."""
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
                text("A survey begins with nothing: its model is one number, made for you.", "c-faint")
                return
            several = self._preset.models > 1
            wanted = "two or more safetensors files, one per model" if several else "a safetensors file"
            text(f"Upload {wanted}, or begin where an earlier task stands now.", "c-faint")
            upload = ui.upload(
                label="Safetensors file", auto_upload=True, multiple=several, max_file_size=MOST_MODEL_BYTES
            ).props("accept=.safetensors flat bordered")
            upload.on_upload(handler(self._context, self._take))
            upload.on_rejected(lambda: ui.notify("At most 256 MiB, and a .safetensors file.", type="negative"))
            ended = {
                task["id"]: f"{task['specification']['name']} (version of round {task['round']})"
                for task in self._tasks
                if task["model_digests"] and task["specification"]["preset"] != "survey"
            }
            self._reuse = ui.select({"": "–"} | ended, value="", label="Or the newest model of").props("outlined dense")
            self._said = text("", "c-faint c-small")

    async def _take(self, event: events.UploadEventArguments) -> None:
        content = await event.file.read()
        self._uploaded[event.file.name] = await self._context.platform.upload_model(content)
        self._said.set_text("Uploaded: " + ", ".join(self._uploaded))

    def _changed(self) -> None:
        if self._fields and [item.key for item in shown(self._preset, self._values)] != self._fields:
            self._draw_fields()
        self._meaning.clear()
        with self._meaning:
            try:
                spec = self._spec()
                told = consequences(spec)
            except (ValueError, ArithmeticError, TypeError) as error:
                note("edit", f"Not complete yet: {error}", "warn")
                return
            with card("What this means"):
                for what, words_ in told:
                    with ui.element("div"):
                        say("h3", what)
                        text(words_)
            with card("Who could see what"):
                facts(who_sees(axes_of(spec)))
            if self._preset.name == "clusters" and self._context.is_admin:
                with card(
                    "Clusters it would begin with", "If the devices that are active now joined, by today's trust."
                ):
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
            network(palette(self._context.dark), drawing, f"Planned clusters: {drawing.said}", height=320)
            payoff = sum(answer["payoff"]) / max(1, len(answer["payoff"]))
            text(f"{drawing.said}. Mean payoff {payoff:.2f} points.", "c-small")
            if len(chosen) == MOST_WHAT_IF:
                text(f"Asked for the first {MOST_WHAT_IF} devices only.", "c-faint c-small")

    def _spec(self) -> Spec:
        name, about = str(self._values.get("name") or "").strip(), str(self._values.get("description") or "").strip()
        made = specification(self._preset, name, about, self._values, auto_start=bool(self._auto.value))
        made |= joining(str(self._values.get("join_by") or "open"), str(self._values.get("invited") or ""))
        return merged(made, str(self._more.value or ""))

    async def _publish(self) -> None:
        self._problem.clear()
        if [item for item in (*self._named, *self._controls) if not item.validate()]:  # all say what is wrong
            with self._problem:
                note("edit", "Some fields need a change; each says which.", "warn")
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
            raise ValueError("upload a model to begin with, or choose an earlier task's")
        return list(task["model_digests"])
