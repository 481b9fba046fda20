"""The console's pages, one module each."""

from __future__ import annotations

from services.console.components.frame import Pages
from services.console.pages import audit, health, me, new_task, overview, payments, privacy, task, tasks, trust

PAGES = (overview, tasks, new_task, task, trust, privacy, payments, audit, health, me)


def register(pages: Pages) -> None:
    for item in PAGES:
        item.add(pages)
