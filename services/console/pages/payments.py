"""Payments: summary, list, prices, accounts with statements, and verification of the book."""

from __future__ import annotations

import asyncio

from nicegui import ui

from coterie.records import Task
from services.console.components.actions import handler
from services.console.components.blocks import heading
from services.console.components.contexts import PageContext
from services.console.components.frame import STAFF, Pages
from services.console.domain.names import Names
from services.console.pages import payments_accounts, payments_lists

TABS = {
    "summary": ("Summary", "summarize", payments_lists.show_summary),
    "payments": ("Payments", "payments", payments_lists.show_payments),
    "prices": ("Prices", "sell", payments_lists.show_prices),
    "accounts": ("Accounts", "account_balance", payments_accounts.show),
    "book": ("The book", "menu_book", payments_accounts.show_book),
}


def add(pages: Pages) -> None:
    pages.add("/payments", "Payments", STAFF, show_page)


async def show_page(context: PageContext, show: str = "summary", account: str = "", task: str = "") -> None:
    """Draw the page; `account` opens a statement, `task` filters lists."""
    with heading("Payments", "All amounts are in credits."):
        pass
    names, tasks = await asyncio.gather(_names(context), _tasks(context))
    chosen = "accounts" if account else "summary" if show == "odd" or show not in TABS else show
    tabs_shown = [key for key in TABS if context.is_admin or key != "book"]
    with ui.tabs().props("no-caps align=left inline-label dense outside-arrows mobile-arrows") as tabs:
        for key in tabs_shown:
            ui.tab(key, *TABS[key][:2])
    with ui.tab_panels(tabs, value=chosen, animated=False).props("keep-alive") as panels:
        places = {key: ui.tab_panel(key) for key in tabs_shown}
    drawn: set[str] = set()

    async def open_tab() -> None:
        key = str(panels.value)
        if key not in drawn:
            drawn.add(key)
            with places[key], ui.element("div").classes("c-stack").style("gap: var(--gap)"):
                await TABS[key][2](context, names, tasks, {"account": account, "task": task})

    await open_tab()
    panels.on_value_change(handler(context, open_tab))


async def _names(context: PageContext) -> Names:
    return await context.app.directory.names(context.platform, fresh_seconds=60.0) if context.is_admin else Names()


async def _tasks(context: PageContext) -> dict[str, Task]:
    own = {} if context.is_admin else {"publisher": context.person.subject}
    result = await context.platform.read_all(Task, "/v1/tasks", most=1_000, **own)
    return {item.id: item for item in result}
