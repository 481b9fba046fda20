"""Small pieces of pages: headings, cards, tiles, chips, bars, facts, notes, empty places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from services.console.domain import words

STATES: dict[str, tuple[str, str]] = {
    "created": ("hourglass_empty", "info"),
    "running": ("play_circle", "info"),
    "open": ("play_circle", "info"),
    "closing": ("sync", "info"),
    "settling": ("sync", "info"),
    "finished": ("check_circle", "good"),
    "done": ("check_circle", "good"),
    "delivered": ("check_circle", "good"),
    "active": ("check_circle", "good"),
    "serving": ("check_circle", "good"),
    "failed": ("error", "bad"),
    "rejected": ("block", "bad"),
    "revoked": ("block", "bad"),
    "away": ("cloud_off", "bad"),
    "cancelled": ("cancel", "warn"),
    "dropped": ("person_off", "warn"),
    "late": ("schedule", "warn"),
    "declined": ("do_not_disturb_on", "warn"),
    "orphaned": ("link_off", "warn"),
    "withdrawn": ("logout", "warn"),
    "assigned": ("hourglass_empty", ""),
    "working": ("autorenew", "info"),
}


def say(tag: str, content: str, classes: str = "") -> TextElement:
    """An element with text: never markup, whatever the text holds."""
    return TextElement(tag=tag, text=content).classes(classes)


@contextmanager
def heading(title: str, about: str = "") -> Iterator[None]:
    """The page's head; what is made inside the block stands to its right."""
    with ui.element("div").classes("c-head"):
        with ui.element("div"):
            say("h1", title)
            if about:
                text(about, "c-faint")
        with ui.element("div").classes("c-row"):
            yield


@contextmanager
def card(title: str = "", about: str = "", *, label: str = "") -> Iterator[ui.element]:
    """A card with a heading; a region of its own for screen readers."""
    with ui.element("section").classes("c-card") as section:
        section.props["aria-label"] = title or label
        if title:
            with ui.element("div").classes("c-card-head"), ui.element("div"):
                say("h2", title)
                if about:
                    text(about, "c-faint c-small")
        yield section


@contextmanager
def grid(least: int = 320, *, even: bool = False) -> Iterator[None]:
    """Cards beside each other as far as they fit, each at least so many pixels wide; `even`: all alike high."""
    with ui.element("div").classes("c-grid even" if even else "c-grid").style(f"--least: {least}px"):
        yield


def text(content: str, classes: str = "") -> TextElement:
    """A paragraph."""
    return say("p", content, classes)


def tile(label: str, value: str, about: str = "", href: str = "") -> None:
    """One figure."""
    box = ui.element("a" if href else "div").classes("c-tile")
    if href:
        box.props["href"] = href
    with box:
        for content, name in ((label, "l"), (value, "v"), (about, "n")):
            if content:
                say("span", content, name)


def chip(state: str, label: str = "") -> None:
    """A state as icon, colour and word: none of the three alone."""
    icon, tone = STATES.get(state, ("help", ""))
    with ui.element("span").classes(f"c-chip {tone}"):
        ui.icon(icon).props("aria-hidden=true")
        say("span", label or words.STATE_WORDS.get(state, state))


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Names and values beside each other."""
    with ui.element("dl").classes("c-facts"):
        for name, value in rows:
            say("dt", name)
            say("dd", value)


def note(icon: str, content: str, tone: str = "") -> None:
    """A remark that stands out; a bad one is read out at once."""
    with ui.element("div").classes(f"c-note {tone}").props(f"role={'alert' if tone == 'bad' else 'note'}"):
        ui.icon(icon).props("aria-hidden=true")
        say("div", content)


def empty(icon: str, title: str, what_next: str) -> None:
    """Nothing is here yet, and what to do about it."""
    with ui.element("div").classes("c-empty"):
        ui.icon(icon).props("aria-hidden=true")
        say("b", title)
        text(what_next)


def bar(share: float, label: str, *, tone: str = "", thin: bool = False, mark: float | None = None) -> None:
    """A share as a bar; `mark` draws a line at another share, such as a quorum."""
    share = min(1.0, max(0.0, share))
    with ui.element("div").classes(f"c-bar {tone} {'thin' if thin else ''}") as box:
        box.props.update(
            {"role": "progressbar", "aria-label": label, "aria-valuenow": round(100 * share), "aria-valuemin": 0}
            | {"aria-valuemax": 100}
        )
        ui.element("i").style(f"width: {100 * share:.1f}%")
        if mark is not None:
            ui.element("b").style(f"left: {100 * min(1.0, mark):.1f}%")


def button(label: str, icon: str, act: Callable[..., Any], kind: str = "c-plain") -> ui.button:
    """A button that does something here."""
    return ui.button(label, icon=icon, on_click=act, color=None).classes(kind).props("unelevated no-caps")


def link_button(label: str, icon: str, href: str, kind: str = "c-plain") -> ui.button:
    """A button that leads somewhere."""
    made = ui.button(label, icon=icon, color=None).classes(kind).props("unelevated no-caps")
    made.props["href"] = href
    return made


def link(label: str, href: str, classes: str = "") -> TextElement:
    """A link inside the console."""
    made = say("a", label, classes)
    made.props["href"] = href
    return made
