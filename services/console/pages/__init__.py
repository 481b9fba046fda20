"""The pages: one module each."""

from __future__ import annotations

from services.console.pages import overview, task, tasks, trust
from services.console.parts.frame import Pages

PAGES = (overview, tasks, task, trust)


def register(pages: Pages) -> None:
    """Registers every page."""
    for each in PAGES:
        each.add(pages)
