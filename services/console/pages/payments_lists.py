"""Payments by task, device and round, odd payments, and price history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nicegui import ui

from coterie.records import Earner, Payment, Quote, Summary, Task, TaskCost
from services.console.components.actions import handler
from services.console.components.blocks import card, empty, grid, link_button, note, text, tile
from services.console.components.charts import bars, chart, lines, palette
from services.console.components.contexts import PageContext
from services.console.components.tables import Column, table
from services.console.domain import words
from services.console.domain.names import Names
from services.console.domain.prices import course

MOST_PAYMENTS = 500
MOST_BARS = 15
MOST_ROUNDS = 60
COST_COLUMNS = (
    Column("task", "Task", "link"),
    Column("paid", "Paid", "number"),
    Column("escrow", "Still in escrow", "number"),
    Column("rounds", "Rounds paid", "number"),
    Column("mean", "Mean per round", "number"),
)
PAYMENT_COLUMNS = (
    Column("at", "When"),
    Column("task", "Task", "link"),
    Column("round", "Round", "number"),
    Column("device", "Device"),
    Column("amount", "Credits", "number"),
    Column("price", "Unit price", "number"),
    Column("budget", "Budget", "number"),
    Column("because", "Why", wrap=True),
)
Tasks = Mapping[str, Task]
Query = Mapping[str, str]


async def show_summary(context: PageContext, names: Names, tasks: Tasks, query: Query) -> None:
    """Draw totals, top earners, cost by task, and odd payments."""
    summary = await _summary(context, tasks)
    with grid(200, even=True):
        tile("Paid in total", words.credits(summary.paid_microcredits, places=2), "credits to devices")
        tile("In escrow", words.credits(summary.outstanding_microcredits, places=2), "credits set aside for tasks")
        tile("Tasks that pay", str(len(summary.tasks)))
        tile("Odd payments", str(len(summary.anomalies)), "far from the median of their round")
    if not summary.tasks:
        with card(label="Payments"):
            empty("payments", "No payments yet.", "Payments appear when a task with escrow settles a round.")
        return
    top = summary.earners[:MOST_BARS]
    with grid(440):
        with card("Top earners"):
            options = bars(
                palette(context.dark),
                [names.device(item.device_id) for item in top],
                [item.paid_microcredits / words.MICRO for item in top],
                unit="credits",
            )
            chart(options, "Credits earned by device", height=70 + 24 * len(top))
        with card("Cost by task"):
            rows = [_cost(tasks, task) for task in summary.tasks]
            table(COST_COLUMNS, rows, label="Cost by task", nothing=("payments", "None.", ""), csv_name="costs.csv")
    if summary.anomalies:
        _odd(summary.anomalies, names, tasks)


async def _summary(context: PageContext, tasks: Tasks) -> Summary:
    if context.is_admin:
        return await context.platform.read(Summary, "/v1/payments/summary")
    paying = [key for key, entry in tasks.items() if entry.specification.escrow_microcredits]
    asks = (context.platform.read(Summary, "/v1/payments/summary", task=item) for item in paying)
    result = await asyncio.gather(*asks)
    earned: dict[str, Earner] = {}
    for entry in (earner for summary in result for earner in summary.earners):
        so_far = earned.get(entry.device_id, replace(entry, paid_microcredits=0, payments=0))
        earned[entry.device_id] = replace(
            so_far,
            paid_microcredits=so_far.paid_microcredits + entry.paid_microcredits,
            payments=so_far.payments + entry.payments,
        )
    return Summary(
        outstanding_microcredits=sum(summary.outstanding_microcredits for summary in result),
        paid_microcredits=sum(summary.paid_microcredits for summary in result),
        earners=tuple(sorted(earned.values(), key=lambda earner: -earner.paid_microcredits)),
        tasks=tuple(task for summary in result for task in summary.tasks),
        anomalies=tuple(line for summary in result for line in summary.anomalies),
    )


def _cost(tasks: Tasks, cost: TaskCost) -> dict[str, Any]:
    task = tasks.get(cost.task_id)
    mean = cost.paid_microcredits // max(1, cost.rounds)
    return {
        "id": cost.task_id,
        "task": task.specification.name if task else words.short(cost.task_id),
        "task_href": f"/tasks/{cost.task_id}",
        "paid": words.credits(cost.paid_microcredits),
        "paid_sort": cost.paid_microcredits / words.MICRO,
        "escrow": words.credits(cost.escrow_microcredits),
        "escrow_sort": cost.escrow_microcredits / words.MICRO,
        "rounds": cost.rounds,
        "mean": words.credits(mean),
        "mean_sort": mean / words.MICRO,
    }


def _odd(lines_: Sequence[str], names: Names, tasks: Tasks) -> None:
    with card("Odd payments", "Far from the median of their round. They can be correct: check the reason."):
        for line in lines_[:30]:
            message = line
            for key, task in tasks.items():
                message = message.replace(key, f"“{task.specification.name}”")
            for key, device in names.devices.items():
                if key in message:
                    message = message.replace(key, str(device["name"]))
            note("report", message, "warn")
        if len(lines_) > 30:
            text(f"and {len(lines_) - 30} more", "c-faint c-small")


async def show_payments(context: PageContext, names: Names, tasks: Tasks, query: Query) -> None:
    """Draw the newest payments of one task or all."""
    options = {key: task.specification.name for key, task in tasks.items()}
    if not options:
        with card(label="Payments"):
            empty("payments", "No payments yet.", "Payments appear when a task with escrow settles a round.")
        return
    if context.is_admin:
        options = {"": "All tasks"} | options
    chosen = query["task"] if query["task"] in options else next(iter(options))
    with card("Payments", f"The newest {MOST_PAYMENTS}; the CSV has all payments."):
        with ui.element("div").classes("c-row"):
            select = ui.select(options, value=chosen, label="Task", with_input=True).props("outlined dense")
            select.style("width: 260px")
            sheet = link_button("Download CSV", "download", f"/files/payments?task={chosen}")
        place = ui.element("div").classes("c-stack")

    async def draw() -> None:
        task = str(select.value or "")
        sheet.props["href"] = f"/files/payments?task={task}"
        sheet.update()
        result = await context.platform.read_page(Payment, "/v1/payments", task=task, limit=MOST_PAYMENTS)
        place.clear()
        with place:
            nothing = ("payments", "No payments.", "Payments appear when a round is settled.")
            rows = [_payment(context, names, tasks, item) for item in result]
            table(PAYMENT_COLUMNS, rows, key="number", label="Payments", nothing=nothing, search=len(rows) > 12)

    await draw()
    select.on_value_change(handler(context, draw))


def _payment(context: PageContext, names: Names, tasks: Tasks, payment: Payment) -> dict[str, Any]:
    task = tasks.get(payment.task_id)
    return {
        "number": payment.number,
        "at": context.moment(payment.at),
        "at_sort": payment.at,
        "task": task.specification.name if task else words.short(payment.task_id),
        "task_href": f"/tasks/{payment.task_id}",
        "round": payment.round,
        "device": names.device(payment.device_id),
        "amount": words.credits(payment.amount_microcredits),
        "amount_sort": payment.amount_microcredits / words.MICRO,
        "price": words.credits(payment.price_microcredits) if payment.price_microcredits else "–",
        "price_sort": payment.price_microcredits / words.MICRO,
        "budget": words.number(payment.budget) if payment.budget else "–",
        "budget_sort": payment.budget,
        "because": payment.because.replace("µcr", "micro-credits"),
    }


async def show_prices(context: PageContext, names: Names, tasks: Tasks, query: Query) -> None:
    """Draw the price history of a task."""
    priced = {
        key: task.specification.name
        for key, task in tasks.items()
        if task.specification.incentive != "none" and task.round
    }
    with card("Prices", f"Offers to devices in the last {MOST_ROUNDS} rounds of a task."):
        if not priced:
            empty("sell", "No task has quoted prices yet.", "Prices appear with the first round of a task that pays.")
            return
        chosen = query["task"] if query["task"] in priced else next(iter(priced))
        select = ui.select(priced, value=chosen, label="Task", with_input=True).props("outlined dense")
        select.style("max-width: 260px")
        place = ui.element("div").classes("c-stack")

    async def draw() -> None:
        task = tasks[str(select.value)]
        first = max(1, task.round - MOST_ROUNDS + 1)
        path = f"/v1/tasks/{task.id}/rounds"
        asks = (context.platform.read(Quote, f"{path}/{number}/prices") for number in range(first, task.round + 1))
        quotes = [item for item in await asyncio.gather(*asks, return_exceptions=True) if isinstance(item, Quote)]
        place.clear()
        with place, ui.element("div").classes("c-grid").style("--least: 380px"):
            for title, unit, series in course(quotes):
                with ui.element("div").classes("c-stack"):
                    text(title, "c-small c-faint")
                    options = lines(palette(context.dark), series, across="round", up=unit)
                    chart(options, title, height=250)

    await draw()
    select.on_value_change(handler(context, draw))
