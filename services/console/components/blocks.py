"""Building blocks of pages: headings, cards, tiles, chips, bars, facts, notes, empty states."""

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


def text_element(tag: str, content: str, classes: str = "") -> TextElement:
    """Create an element with text; the browser never reads the text as markup."""
    return TextElement(tag=tag, text=content).classes(classes)


@contextmanager
def heading(title: str, about: str = "") -> Iterator[None]:
    """Draw the page's heading; elements created inside the block appear to its right."""
    with ui.element("div").classes("c-head"):
        with ui.element("div"):
            text_element("h1", title)
            if about:
                text(about, "c-faint")
        with ui.element("div").classes("c-row"):
            yield


@contextmanager
def card(title: str = "", about: str = "", *, label: str = "") -> Iterator[ui.element]:
    """Draw a card with a heading; screen readers see it as a separate region."""
    with ui.element("section").classes("c-card") as section:
        section.props["aria-label"] = title or label
        if title:
            with ui.element("div").classes("c-card-head"), ui.element("div"):
                text_element("h2", title)
                if about:
                    text(about, "c-faint c-small")
        yield section


@contextmanager
def grid(least: int = 320, *, even: bool = False) -> Iterator[None]:
    """Arrange cards side by side, each at least `least` pixels wide; `even` gives them equal height."""
    with ui.element("div").classes("c-grid even" if even else "c-grid").style(f"--least: {least}px"):
        yield


def text(content: str, classes: str = "") -> TextElement:
    return text_element("p", content, classes)


def tile(label: str, value: str, about: str = "", href: str = "") -> None:
    """Draw one figure with its label."""
    box = ui.element("a" if href else "div").classes("c-tile")
    if href:
        box.props["href"] = href
    with box:
        for content, name in ((label, "l"), (value, "v"), (about, "n")):
            if content:
                text_element("span", content, name)


def chip(state: str, label: str = "") -> None:
    """Draw a state as icon, colour and word, so that it never depends on colour alone."""
    icon, tone = STATES.get(state, ("help", ""))
    with ui.element("span").classes(f"c-chip {tone}"):
        ui.icon(icon).props("aria-hidden=true")
        text_element("span", label or words.STATE_WORDS.get(state, state))


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Draw names with their values."""
    with ui.element("dl").classes("c-facts"):
        for name, value in rows:
            text_element("dt", name)
            text_element("dd", value)


def note(icon: str, content: str, tone: str = "") -> None:
    """Draw a highlighted remark; screen readers announce a bad one at once."""
    with ui.element("div").classes(f"c-note {tone}").props(f"role={'alert' if tone == 'bad' else 'note'}"):
        ui.icon(icon).props("aria-hidden=true")
        text_element("div", content)


def empty(icon: str, title: str, what_next: str) -> None:
    """Draw an empty state with the next step."""
    with ui.element("div").classes("c-empty"):
        ui.icon(icon).props("aria-hidden=true")
        text_element("b", title)
        text(what_next)


def bar(share: float, label: str, *, tone: str = "", thin: bool = False, mark: float | None = None) -> None:
    """Draw a share as a bar; `mark` draws a line at another share, such as a quorum."""
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
    """Create a button that runs an action."""
    return ui.button(label, icon=icon, on_click=act, color=None).classes(kind).props("unelevated no-caps")


def link_button(label: str, icon: str, href: str, kind: str = "c-plain") -> ui.button:
    """Create a button that opens another page."""
    made = ui.button(label, icon=icon, color=None).classes(kind).props("unelevated no-caps")
    made.props["href"] = href
    return made


def link(label: str, href: str, classes: str = "") -> TextElement:
    """Create a link inside the console."""
    made = text_element("a", label, classes)
    made.props["href"] = href
    return made
