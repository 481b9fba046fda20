"""One task: progress, plan, devices, events, model versions and settings."""

from __future__ import annotations

import time

from nicegui import ui

from coterie.errors import CoterieError, Refused
from coterie.records.enums import RoundState, TaskState
from services.console.components.actions import handler, sentence
from services.console.components.blocks import bar, button, card, chip, heading, note, text
from services.console.components.contexts import PageContext
from services.console.components.frame import STAFF, Pages, leave
from services.console.components.task_watch import Watch
from services.console.domain import words
from services.console.domain.graph import Graph
from services.console.domain.names import Names
from services.console.domain.progress import seconds_left
from services.console.errors import SignedOut
from services.console.pages import task_devices, task_events, task_plan, task_progress, task_versions

REFRESH_SECONDS = 1.5
TABS = {
    "progress": ("Progress", "show_chart", task_progress.show),
    "plan": ("Plan", "hub", task_plan.show),
    "devices": ("Devices", "devices", task_devices.show),
    "events": ("Events", "list_alt", task_events.show),
    "versions": ("Versions", "inventory_2", task_versions.show),
    "settings": ("Settings", "tune", task_versions.show_settings),
}


def add(pages: Pages) -> None:
    pages.add("/tasks/{task_id}", "Task", STAFF, show)


async def show(context: PageContext, task_id: str, tab: str = "progress") -> None:
    """Draw the page and refresh it while the task runs."""
    watch = await Watch.of(context, task_id)
    names = await names_of(context, task_id)
    head = ui.element("div").classes("c-stack").style("gap: var(--gap)")
    away = ui.element("div")

    def draw_head() -> None:
        head.clear()
        with head:
            _head(context, watch)

    draw_head()
    watch.listeners.append(draw_head)
    await _tabs(context, watch, names, tab if tab in TABS else "progress")

    async def refresh() -> None:
        if watch.ended:
            return
        try:
            await watch.refresh()
            away.clear()
        except SignedOut as error:
            leave(str(error))
        except CoterieError as error:
            away.clear()
            with away:
                note("cloud_off", f"{sentence(error)} The page shows the last known state.", "bad")

    ui.timer(REFRESH_SECONDS, refresh, immediate=False)


async def names_of(context: PageContext, task_id: str) -> Names:
    """Return the names of the task's devices; publishers see those in their task's graph."""
    if context.is_admin:
        return await context.app.directory.names(context.platform)
    try:
        graph: Graph = await context.app.graphs.graph(context.platform, task=task_id)
    except Refused:
        return Names()
    return Names({device["id"]: dict(device) for device in graph.devices})


async def _tabs(context: PageContext, watch: Watch, names: Names, chosen: str) -> None:
    with ui.tabs().props("no-caps align=left inline-label dense outside-arrows mobile-arrows") as tabs:
        for key, (label, icon, _) in TABS.items():
            ui.tab(key, label, icon)
    drawn: set[str] = set()
    with ui.tab_panels(tabs, value=chosen, animated=False).classes("w-full").props("keep-alive") as panels:
        places = {key: ui.tab_panel(key) for key in TABS}

    async def open_tab() -> None:
        key = str(panels.value)
        if key in drawn:
            return
        drawn.add(key)
        with places[key], ui.element("div").classes("c-stack").style("gap: var(--gap)"):
            await TABS[key][2](context, watch, names)

    await open_tab()
    panels.on_value_change(handler(context, open_tab))


def _head(context: PageContext, watch: Watch) -> None:
    task, spec = watch.task, watch.spec
    kind = f"Preset {spec.preset}" if spec.preset else "Custom combination"
    axes = f"topology {spec.topology}, privacy {spec.privacy}, incentive {spec.incentive}"
    with heading(spec.name, f"{kind}: {axes}"):
        chip(task.state)
        if task.state is TaskState.CREATED:
            button("Start", "play_arrow", handler(context, lambda: _start(watch)), "c-primary")
        if not watch.ended:
            button("Cancel", "stop", handler(context, lambda: _confirm_cancel(context, watch)), "c-danger")
    if spec.description:
        text(spec.description)
    if task.state is TaskState.FAILED:
        note("error", f"The task failed: {task.reason}", "bad")
    elif task.state is TaskState.CANCELLED:
        note("cancel", f"The task was cancelled. {task.reason}", "warn")
    with card(label="Progress"):
        _bar(watch)


def _bar(watch: Watch) -> None:
    task, spec = watch.task, watch.spec
    now = watch.rounds.get(task.round)
    if task.state is TaskState.CREATED:
        joined, least = task.enrolled, spec.min_devices
        start = "It then starts automatically." if spec.auto_start else "Then start it."
        text(f"{joined} of at least {words.count(least, 'device')} have joined. {start}")
        bar(joined / least, "Joined devices")
        return
    done = sum(1 for item in watch.rounds.values() if item.state is RoundState.DONE)
    left = seconds_left(task, watch.in_order())
    with ui.element("div").classes("c-row").style("justify-content: space-between"):
        text(f"{done} of {words.count(spec.rounds, 'round')} done", "c-num")
        if left is not None:
            text(f"about {words.span(left)} left" if left >= 1 else "almost done", "c-faint c-num")
    bar(done / spec.rounds, "Rounds done", tone="bad" if task.state is TaskState.FAILED else "")
    if now is not None and not watch.ended:
        share = now.delivered / max(1, now.participants)
        again = f", attempt {now.attempt}" if now.attempt > 1 else ""
        deadline = max(0.0, now.deadline_at - time.time())
        with ui.element("div").classes("c-row").style("justify-content: space-between"):
            progress = f"Round {now.number}{again} ({now.state}): {now.delivered} of {now.participants} delivered"
            text(f"{progress}, {now.quorum} needed", "c-num c-small")
            if now.state is RoundState.OPEN:
                text(f"closes within {words.span(deadline)}", "c-faint c-small c-num")
        bar(share, "Delivered", thin=True, mark=now.quorum / max(1, now.participants))


async def _start(watch: Watch) -> None:
    await watch.context.platform.start_task(watch.id)
    await watch.refresh()
    ui.notify("The task has started.", type="positive")


def _confirm_cancel(context: PageContext, watch: Watch) -> None:
    with ui.dialog(value=True) as dialog, ui.card():
        text(f"Cancel “{watch.spec.name}”?", "c-strong")
        text("This abandons the open round without payment and returns the rest of the escrow. You cannot undo it.")
        why = ui.input("Reason (visible to owners)").props("outlined dense maxlength=2000").classes("w-full")

        async def cancel() -> None:
            await context.platform.cancel_task(watch.id, str(why.value or ""))
            dialog.close()
            await watch.refresh()
            ui.notify("The task was cancelled.", type="warning")

        with ui.element("div").classes("c-row"):
            button("Cancel the task", "stop", handler(context, cancel), "c-danger")
            button("Keep it", "undo", dialog.close)
