"""The start page: running tasks, devices online, payments of today, and alerts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime

from nicegui import ui

from services.console.components.actions import view
from services.console.components.blocks import bar, card, chip, empty, grid, heading, link, link_button, text, tile
from services.console.components.contexts import PageContext
from services.console.components.frame import STAFF, Pages
from services.console.domain import words
from services.console.domain.alerts import DECLINED, DISPUTED, Alert, TaskEvent, list_alerts
from services.console.domain.limits import DEFAULT_LIMIT
from services.console.domain.names import Names
from services.console.wire.platform import Json

REFRESH_SECONDS = 4.0
RECENT_SECONDS = 7 * 86_400.0
MOST_READ = 6
"""Number of tasks whose newest events are searched for disputes and devices at their limit."""
EVENTS_BACK = 500
MOST_DEVICES = 300
"""Largest number of devices whose ε is checked, in running tasks with noise."""


def add(pages: Pages) -> None:
    pages.add("/", "Overview", STAFF, show)


@dataclass(frozen=True, slots=True)
class OverviewData:
    """Data of the page."""

    tasks: list[Json]
    rounds: dict[str, Json | None]
    online: int
    active: int
    paid_today: int
    payments_today: int
    outstanding: int
    alerts: list[Alert]


async def show(context: PageContext) -> None:
    with heading("Overview", "Running tasks, devices, payments and alerts."):
        link_button("New task", "add", "/tasks/new", "c-primary")
    await view(context, lambda: read(context), lambda data: draw(context, data), every_seconds=REFRESH_SECONDS)


async def read(context: PageContext) -> OverviewData:
    """Read all data of the page concurrently."""
    own = {} if context.is_admin else {"publisher": context.person.subject}
    tasks, _ = await context.platform.page("/v1/tasks", limit=100, **own)
    running = [task for task in tasks if task["state"] == "running"]
    rounds, names, money, events, reports = await asyncio.gather(
        _open_rounds(context, running),
        _names(context),
        _money(context, tasks),
        _events(context, tasks),
        _reports(context, running),
    )
    paid, count, outstanding, anomalies = money
    builds, keys = await _expiry_data(context)
    alerts = list_alerts(
        tasks,
        names,
        anomalies,
        now=time.time(),
        recent_seconds=RECENT_SECONDS,
        events=events,
        builds=builds,
        keys=keys,
        reports=reports,
    )
    waiting = [task for task in tasks if task["state"] in ("running", "created")]
    return OverviewData(
        tasks=waiting,
        rounds=rounds,
        online=names.online(time.time()),
        active=names.active(),
        paid_today=paid,
        payments_today=count,
        outstanding=outstanding,
        alerts=alerts,
    )


async def _names(context: PageContext) -> Names:
    return await context.app.directory.names(context.platform) if context.is_admin else Names()


async def _expiry_data(context: PageContext) -> tuple[Json, list[Json]]:
    """Return builds with their certificates, and API keys; empty for publishers."""
    if not context.is_admin:
        return {}, []
    versions, keys = await asyncio.gather(
        context.platform.get("/v1/versions"), context.platform.all("/v1/keys", most=2_000)
    )
    return dict(versions["services"]), keys


async def _open_rounds(context: PageContext, tasks: list[Json]) -> dict[str, Json | None]:
    async def newest(task: Json) -> Json | None:
        if not task["round"]:
            return None
        return dict((await context.platform.get(f"/v1/tasks/{task['id']}/rounds/{task['round']}"))["round"])

    current_rounds = await asyncio.gather(*(newest(task) for task in tasks))
    return {task["id"]: current for task, current in zip(tasks, current_rounds, strict=True)}


async def _events(context: PageContext, tasks: list[Json]) -> list[TaskEvent]:
    """Return disputed verdicts and declined work among the newest events of recent tasks with clusters or noise."""
    since = time.time() - RECENT_SECONDS
    read = [
        task
        for task in tasks
        if (task["specification"]["topology"] == "clusters" or _has_noise(task))
        and (task["state"] == "running" or task["ended_at"] >= since)
    ][:MOST_READ]
    lists = await asyncio.gather(
        *(context.platform.events(task["id"], max(0, task["last_event"] - EVENTS_BACK)) for task in read)
    )
    kinds = (DISPUTED, DECLINED)
    return [
        (task, event) for task, result in zip(read, lists, strict=True) for event in result if event["kind"] in kinds
    ]


async def _reports(context: PageContext, running: list[Json]) -> list[Json]:
    """Return privacy reports of devices in running tasks with noise, at the δ of the default limit; for admins."""
    if not context.is_admin:
        return []
    lists = await asyncio.gather(
        *(
            context.platform.all(f"/v1/tasks/{task['id']}/enrolments", most=MOST_DEVICES)
            for task in running
            if _has_noise(task)
        )
    )
    devices = dict.fromkeys(item["device_id"] for result in lists for item in result)
    return await context.app.reports.of(context.platform, list(devices)[:MOST_DEVICES], DEFAULT_LIMIT.delta)


def _has_noise(task: Json) -> bool:
    return bool(task["specification"]["privacy"] != "none")


async def _money(context: PageContext, tasks: list[Json]) -> tuple[int, int, int, list[str]]:
    """Return micro-credits paid today, number of payments, micro-credits in escrow, and anomalies."""
    midnight = datetime.now(context.zone).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    if context.is_admin:
        payments, summary = await asyncio.gather(
            context.platform.all("/v1/payments", since=midnight, most=5_000),
            context.platform.get("/v1/payments/summary"),
        )
        paid = sum(payment["amount_microcredits"] for payment in payments)
        return paid, len(payments), summary["outstanding_microcredits"], list(summary["anomalies"])
    paid_tasks = [task for task in tasks if task["specification"]["escrow_microcredits"]][:20]
    lists = await asyncio.gather(
        *(context.platform.all("/v1/payments", task=task["id"], since=midnight, most=1_000) for task in paid_tasks)
    )
    sums = await asyncio.gather(*(context.platform.get("/v1/payments/summary", task=t["id"]) for t in paid_tasks))
    payments = [item for result in lists for item in result]
    return (
        sum(payment["amount_microcredits"] for payment in payments),
        len(payments),
        sum(item["outstanding_microcredits"] for item in sums),
        [line for item in sums for line in item["anomalies"]],
    )


def draw(context: PageContext, data: OverviewData) -> None:
    """Draw tiles, tasks and alerts."""
    running = sum(1 for task in data.tasks if task["state"] == "running")
    with grid(190, even=True):
        tile("Running tasks", str(running), f"{len(data.tasks) - running} waiting to start", "/tasks")
        if context.is_admin:
            about = f"of {words.count(data.active, 'active device')}, seen within 2 min"
            tile("Devices online", f"{data.online:,}", about, "/trust")
        about = f"credits in {words.count(data.payments_today, 'payment')}"
        tile("Paid today", words.credits(data.paid_today, places=2), about, "/payments")
        tile("In escrow", words.credits(data.outstanding, places=2), "credits set aside for tasks", "/payments")
    with grid(420):
        with card("Active tasks"):
            _tasks(data)
        with card("Needs attention", "From the last seven days."):
            _alerts(context, data.alerts)


def _tasks(data: OverviewData) -> None:
    if not data.tasks:
        empty("model_training", "No active tasks.", "Publish a task: choose a preset and upload a model.")
        return
    for task in data.tasks[:12]:
        spec, now = task["specification"], data.rounds.get(task["id"])
        with ui.element("div").classes("c-stack").style("gap: 5px"):
            with ui.element("div").classes("c-row"):
                link(spec["name"], f"/tasks/{task['id']}").style("font-weight: 500")
                chip(task["state"])
                text(spec["preset"] or spec["topology"], "c-faint c-small")
            if task["state"] == "running":
                done = max(0, task["round"] - 1)
                bar(done / spec["rounds"], f"{spec['name']}: rounds done", thin=True)
                text(_progress(task, now), "c-faint c-small c-num")
            else:
                wanted = f"{task['enrolled']} of at least {spec['min_devices']} devices have joined"
                text(wanted, "c-faint c-small c-num")


def _progress(task: Json, now: Json | None) -> str:
    progress = f"round {task['round']} of {task['specification']['rounds']}"
    if now is None:
        return progress
    return f"{progress} · {now['delivered']} of {now['participants']} delivered, {now['quorum']} needed"


def _alerts(context: PageContext, alerts: list[Alert]) -> None:
    if not alerts:
        empty("task_alt", "All clear.", "Failed tasks, changed keys and odd payments appear here.")
        return
    with ui.element("div"):
        for alert in alerts[:12]:
            with ui.element("div").classes("c-item"):
                ui.icon(alert.icon).props("aria-hidden=true").style(f"color: var(--{alert.tone})")
                with ui.element("div"):
                    link(alert.title, alert.href) if alert.href else text(alert.title)
                    text(alert.what + (f" · {context.ago(alert.at)}" if alert.at else ""), "c-faint c-small")
