"""Event log of a task, with filters."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from coterie.records import Event
from services.console.components.blocks import card, empty, link, text
from services.console.components.contexts import PageContext
from services.console.components.task_watch import Watch
from services.console.domain.names import Names

MOST_SHOWN = 200
ICONS = {
    "task": "flag",
    "round": "loop",
    "update": "upload",
    "work": "do_not_disturb_on",
    "device": "devices",
    "plan": "hub",
    "letter": "mail",
}
BAD = ("failed", "rejected", "suspicious", "refused", "dropped", "declined", "cancelled")


async def show(context: PageContext, watch: Watch, names: Names) -> None:
    """Draw the log, newest first, and refresh it."""
    with card("Event log", "Newest first; updates automatically while the task runs."):
        with ui.element("div").classes("c-row"):
            kind = ui.select({}, label="Kind", clearable=True).props("outlined dense").style("width: 200px")
            device = ui.select({}, label="Device", clearable=True, with_input=True).props("outlined dense")
            device.style("width: 200px")
            words_in = ui.input("Text").props("outlined dense clearable debounce=200").style("width: 200px")
        place = ui.element("div")

    def draw() -> None:
        kinds = sorted({str(event.kind) for event in watch.events})
        devices = sorted({event.device_id for event in watch.events if event.device_id})
        kind.set_options(kinds, value=kind.value)
        device.set_options({item: names.device(item) for item in devices}, value=device.value)
        result = [event for event in reversed(watch.events) if _fits(event, kind.value, device.value, words_in.value)]
        place.clear()
        with place:
            _log(context, names, result, len(watch.events))

    draw()
    for control in (kind, device, words_in):
        control.on_value_change(draw)
    seen = {"last": len(watch.events)}

    def when_changed() -> None:
        if seen["last"] != len(watch.events):
            seen["last"] = len(watch.events)
            draw()

    watch.listeners.append(when_changed)


def _fits(event: Event, kind: Any, device: Any, words_in: Any) -> bool:
    wanted = str(words_in or "").lower()
    return (
        (not kind or event.kind == kind)
        and (not device or event.device_id == device)
        and (not wanted or wanted in f"{event.kind} {event.message}".lower())
    )


def _log(context: PageContext, names: Names, events: list[Event], all_events: int) -> None:
    if not events:
        title = "No event matches." if all_events else "No events yet."
        empty(
            "list_alt", title, "Clear a filter to see more." if all_events else "Events appear as the task progresses."
        )
        return
    for event in events[:MOST_SHOWN]:
        with ui.element("div").classes("c-item").style("padding: 7px 0"):
            bad = any(word in event.kind for word in BAD)
            icon = ui.icon(ICONS.get(event.kind.partition(".")[0], "circle")).props("aria-hidden=true")
            icon.style(f"color: var(--{'bad' if bad else 'faint'}); font-size: 18px")
            with ui.element("div"):
                text(event.message or event.kind)
                with ui.element("div").classes("c-row c-small c-faint"):
                    text(
                        f"{context.moment(event.at)} · {event.kind}"
                        + (f" · round {event.round}" if event.round else "")
                    )
                    if event.device_id:
                        link(names.device(event.device_id), f"/trust?device={event.device_id}")
    if len(events) > MOST_SHOWN:
        text(f"The newest {MOST_SHOWN} of {len(events):,}. Narrow the filters to see others.", "c-faint c-small")
