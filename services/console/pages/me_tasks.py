"""On the owner's page: tasks that ask for the device, deciding about them, and who could see what it sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from coterie.agent.pairing import terms_of
from coterie.errors import CoterieError
from coterie.records import TaskSpecification
from services.console.components.actions import View, handler
from services.console.components.blocks import button, card, chip, empty, facts, note, text
from services.console.components.contexts import PageContext
from services.console.domain import words
from services.console.domain.consequences import consequences
from services.console.domain.visibility import promise, who_sees
from services.console.wire.platform import Json

REFRESH_SECONDS = 3.0
MOST_TASKS, MOST_DECISIONS, SHOWN_DECISIONS = 40, 100, 6
SIGN_SECONDS = 15.0
ACTS = {"join": "Join", "refuse": "Take no part in", "pause": "Pause", "resume": "Work again"}
STATES = {"waiting": ("hourglass_empty", "info"), "done": ("check_circle", "good"), "refused": ("block", "bad")}


class NotSigned(CoterieError):
    """The browser could not sign."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Tasks that ask for the device, and what was decided lately, newest first."""

    tasks: list[Json]
    decisions: list[Json]
    note: str
    """What the device left for this browser, sealed."""

    def last(self, task_id: str) -> Json | None:
        """The latest decision about a task."""
        return next((decision for decision in self.decisions if decision["said"].get("task") == task_id), None)

    @property
    def is_paused(self) -> bool:
        """Whether the last thing said about working, and done, was to pause."""
        acts = (decision["said"].get("act") for decision in self.decisions if decision["state"] == "done")
        return next((act for act in acts if act in ("pause", "resume")), "") == "pause"


async def asking(context: PageContext, joined: Collection[str], names: Mapping[str, str]) -> None:
    """The cards of tasks that ask, of pausing and of what was decided; they follow the device's answers."""
    view: View[Asked]

    async def settle(**decided: str) -> None:
        await decide(context, **decided)
        await view.refresh()

    def draw(found: Asked) -> None:
        _tasks(context, found, joined, settle)
        if context.person.link_id:
            _pause(context, found, settle)
            _decided(context, found)
            _unseal(context, found.note, names)

    view = View(context, lambda: _read(context), draw, every_seconds=REFRESH_SECONDS)
    await view.refresh()


def _unseal(context: PageContext, note: str, names: Mapping[str, str]) -> None:
    """Lets the browser read what the device told it alone, and fill it in."""
    told = (json.dumps(item).replace("<", "\\u003c") for item in (context.person.link_id, note, dict(names)))
    ui.run_javascript(f"coterieNote({', '.join(told)})")


async def _read(context: PageContext) -> Asked:
    path = f"/v1/devices/{context.person.subject}"
    (tasks, _), (decisions, _), links = await asyncio.gather(
        context.platform.page("/v1/tasks", limit=MOST_TASKS),
        context.platform.page(f"{path}/decisions", limit=MOST_DECISIONS),
        context.platform.get(f"{path}/links"),
    )
    told = next((str(link["note"]) for link in links["items"] if link["id"] == context.person.link_id), "")
    asked = [_kept(task) for task in tasks if task["state"] in ("created", "running")]
    return Asked(asked, [{**decision, "said": _said(decision["text"])} for decision in decisions], told)


def _kept(task: Json) -> Json:
    """What the card shows of a task, so that it is not drawn anew with every round."""
    return {name: task[name] for name in ("id", "state", "specification")}


def _said(text: str) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}


async def decide(context: PageContext, **decided: str) -> None:
    """Lets the browser sign a decision, and passes it on to the device."""
    link = context.person.link_id
    asked = f"return await coterieDecide({json.dumps(link)}, {json.dumps(decided)})"
    signed = await ui.run_javascript(asked, timeout=SIGN_SECONDS)
    if not isinstance(signed, dict) or "text" not in signed:
        raise NotSigned(str((signed or {}).get("trouble") or "this browser could not sign; link it again"))
    body = {"text": signed["text"], "signature": signed["signature"]}
    await context.platform.ask("POST", f"/v1/devices/{context.person.subject}/decisions", json=body)
    ui.notify("Signed, and on its way to the device.", type="positive")


def _tasks(context: PageContext, found: Asked, joined: Collection[str], settle: Any) -> None:
    with card("Tasks that ask for devices", "Your device joins what you approve, and nothing else."):
        if not found.tasks:
            empty("inbox", "Nobody asks at the moment.", "New tasks appear here with what they would learn and pay.")
        for task in found.tasks:
            _task(context, task, found.last(task["id"]), task["id"] in joined, settle)


def _task(context: PageContext, task: Json, last: Json | None, joined: bool, settle: Any) -> None:
    spec = task["specification"]
    standing = _standing(last, joined)
    caption = " · ".join(filter(None, (standing, spec["description"] or "no description")))
    with ui.expansion(spec["name"], caption=caption).classes("c-ask"):
        facts(
            [
                ("Learns", spec["description"] or "its publisher does not say"),
                ("Strategy", spec["preset"] or f"{spec['topology']}, {spec['privacy']}"),
                *who_sees(spec),
                *((what, said) for what, said in consequences(_asked(spec)) if what != "Cost"),
                ("Pays", _pay(spec)),
            ]
        )
        text(promise(spec), "c-small")
        if not context.person.link_id:
            text(f"To join: coterie device run --home FOLDER --task {spec['name']}", "c-mono")
            return
        terms = terms_of(task["id"], TaskSpecification.from_json(spec))
        with ui.element("div").classes("c-row"):
            join = handler(context, lambda: settle(act="join", task=task["id"], terms=terms))
            refuse = handler(context, lambda: settle(act="refuse", task=task["id"]))
            if standing not in ("joined", "approved, waits for the device"):
                button("Approve", "check", join, "c-primary")
            if standing not in ("refused", "left, or refused"):
                button("Leave" if joined or standing == "joined" else "Refuse", "block", refuse)


def _standing(last: Json | None, joined: bool) -> str:
    """What is known of the device's part in a task, in words."""
    if last is None:
        return "joined" if joined else ""
    act, state = last["said"].get("act"), last["state"]
    if state == "refused":
        return f"the device did not do so: {last['note']}"
    if act == "join":
        return "joined" if state == "done" else "approved, waits for the device"
    return "left, or refused" if joined else "refused"


def _asked(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in ("", None)}


def _pay(spec: Json) -> str:
    escrow = int(spec["escrow_microcredits"])
    if spec["incentive"] == "none" or not escrow:
        return "nothing"
    return f"from an escrow of {words.credits(escrow)} credits, shared by all devices"


def _pause(context: PageContext, found: Asked, settle: Any) -> None:
    about = "A paused device declines all work, at once, until it works again."
    with card("Pause", about), ui.element("div").classes("c-row"):
        if found.is_paused:
            button("Work again", "play_arrow", handler(context, lambda: settle(act="resume")), "c-primary")
        else:
            button("Pause the device", "pause", handler(context, lambda: settle(act="pause")))
        text("", "c-faint c-small").props("data-note=paused")


def _decided(context: PageContext, found: Asked) -> None:
    if not found.decisions:
        return
    names = {task["id"]: task["specification"]["name"] for task in found.tasks}
    with card("What you decided"):
        if any(decision["state"] == "waiting" for decision in found.decisions):
            note("hourglass_empty", "Your device reads this while it runs: coterie device run --home FOLDER.")
        with ui.element("div"):
            for item in found.decisions[:SHOWN_DECISIONS]:
                icon, tone = STATES.get(item["state"], ("help", "info"))
                with ui.element("div").classes("c-item"):
                    ui.icon(icon).props("aria-hidden=true").style(f"color: var(--{tone})")
                    with ui.element("div"):
                        task = item["said"].get("task", "")
                        about = names.get(task, words.short(task)) if task else ""
                        text(f"{ACTS.get(item['said'].get('act'), 'Something')} {about}".strip())
                        told = {"waiting": "waits for the device", "done": "the device did so"}.get(item["state"], "")
                        said = f": {item['note']}" if item["note"] else ""
                        told = told or "the device did not do so"
                        text(f"{told}{said} · {context.ago(item['at'])}", "c-faint c-small")


def seen(context: PageContext, joined: list[tuple[Json, list[Json]]]) -> None:
    """Who could see what the device sent, task by task."""
    with card("Who could see what it sent"):
        if not joined:
            empty("visibility", "It has sent nothing yet.", "Approve a task to take part.")
        for task, rounds in joined:
            spec = task["specification"]
            delivered = sum(1 for item in rounds if item["state"] == "delivered")
            with ui.expansion(spec["name"], caption=f"{delivered} of {words.count(len(rounds), 'round')} delivered"):
                with ui.element("div").classes("c-row"):
                    chip(task["state"])
                    text(f"last {context.ago(max(item['delivered_at'] for item in rounds))}", "c-faint c-small")
                facts(who_sees(spec))
