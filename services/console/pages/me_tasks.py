"""Owner's page: tasks open to the device, decisions about them, and who can see what it sent."""

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
ACTS = {"join": "Join", "refuse": "Refuse", "pause": "Pause", "resume": "Resume"}
STATES = {"waiting": ("hourglass_empty", "info"), "done": ("check_circle", "good"), "refused": ("block", "bad")}


class NotSigned(CoterieError):
    """The browser could not sign a decision."""


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """Tasks open to the device, and recent decisions, newest first."""

    tasks: list[Json]
    decisions: list[Json]
    note: str
    """Sealed note of the device for this browser."""

    def last(self, task_id: str) -> Json | None:
        """Return the latest decision about a task."""
        return next((decision for decision in self.decisions if decision["decided"].get("task") == task_id), None)

    @property
    def is_paused(self) -> bool:
        """Whether the last decision that the device applied about working was to pause."""
        acts = (decision["decided"].get("act") for decision in self.decisions if decision["state"] == "done")
        return next((act for act in acts if act in ("pause", "resume")), "") == "pause"


async def draw_requests(context: PageContext, joined: Collection[str], names: Mapping[str, str]) -> None:
    """Draw the cards of open tasks, pausing and decisions, and refresh them."""
    view: View[OpenRequests]

    async def settle(**decided: str) -> None:
        await decide(context, **decided)
        await view.refresh()

    def draw(requests: OpenRequests) -> None:
        _tasks(context, requests, joined, settle)
        if context.person.link_id:
            _pause(context, requests, settle)
            _decided(context, requests)
            _unseal(context, requests.note, names)

    view = View(context, lambda: _read(context), draw, every_seconds=REFRESH_SECONDS)
    await view.refresh()


def _unseal(context: PageContext, note: str, names: Mapping[str, str]) -> None:
    """Let the browser decrypt the device's note and show its contents."""
    arguments = (json.dumps(item).replace("<", "\\u003c") for item in (context.person.link_id, note, dict(names)))
    ui.run_javascript(f"coterieNote({', '.join(arguments)})")


async def _read(context: PageContext) -> OpenRequests:
    path = f"/v1/devices/{context.person.subject}"
    (tasks, _), (decisions, _), links = await asyncio.gather(
        context.platform.page("/v1/tasks", limit=MOST_TASKS),
        context.platform.page(f"{path}/decisions", limit=MOST_DECISIONS),
        context.platform.get(f"{path}/links"),
    )
    sealed_note = next((str(link["note"]) for link in links["items"] if link["id"] == context.person.link_id), "")
    open_tasks = [_shown_fields(task) for task in tasks if task["state"] in ("created", "running")]
    return OpenRequests(
        open_tasks, [{**decision, "decided": _parse_decision(decision["text"])} for decision in decisions], sealed_note
    )


def _shown_fields(task: Json) -> Json:
    """Return only the fields that the card shows, so that rounds do not cause a redraw."""
    return {name: task[name] for name in ("id", "state", "specification")}


def _parse_decision(text: str) -> dict[str, Any]:
    try:
        result = json.loads(text)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}


async def decide(context: PageContext, **decided: str) -> None:
    """Let the browser sign a decision, and send it to the device."""
    link = context.person.link_id
    script = f"return await coterieDecide({json.dumps(link)}, {json.dumps(decided)})"
    signed = await ui.run_javascript(script, timeout=SIGN_SECONDS)
    if not isinstance(signed, dict) or "text" not in signed:
        raise NotSigned(str((signed or {}).get("trouble") or "this browser could not sign the decision; link it again"))
    body = {"text": signed["text"], "signature": signed["signature"]}
    await context.platform.ask("POST", f"/v1/devices/{context.person.subject}/decisions", json=body)
    ui.notify("Signed and sent to the device.", type="positive")


def _tasks(context: PageContext, requests: OpenRequests, joined: Collection[str], settle: Any) -> None:
    with card("Open tasks", "Your device joins only the tasks you approve."):
        if not requests.tasks:
            empty("inbox", "No open tasks.", "New tasks appear here with their purpose and payment.")
        for task in requests.tasks:
            _task(context, task, requests.last(task["id"]), task["id"] in joined, settle)


def _task(context: PageContext, task: Json, last: Json | None, joined: bool, settle: Any) -> None:
    spec = task["specification"]
    standing = _standing(last, joined)
    caption = " · ".join(filter(None, (standing, spec["description"] or "no description")))
    with ui.expansion(spec["name"], caption=caption).classes("c-ask"):
        facts(
            [
                ("Learns", spec["description"] or "no description"),
                ("Strategy", spec["preset"] or f"{spec['topology']}, {spec['privacy']}"),
                *who_sees(spec),
                *((what, answer) for what, answer in consequences(_given_fields(spec)) if what != "Cost"),
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
            if standing not in ("joined", "approved, waiting for the device"):
                button("Approve", "check", join, "c-primary")
            if standing not in ("refused", "left, or refused"):
                button("Leave" if joined or standing == "joined" else "Refuse", "block", refuse)


def _standing(last: Json | None, joined: bool) -> str:
    """Describe the device's participation in a task."""
    if last is None:
        return "joined" if joined else ""
    act, state = last["decided"].get("act"), last["state"]
    if state == "refused":
        return f"not applied: {last['note']}"
    if act == "join":
        return "joined" if state == "done" else "approved, waiting for the device"
    return "left, or refused" if joined else "refused"


def _given_fields(spec: Json) -> Json:
    return {key: value for key, value in spec.items() if value not in ("", None)}


def _pay(spec: Json) -> str:
    escrow = int(spec["escrow_microcredits"])
    if spec["incentive"] == "none" or not escrow:
        return "nothing"
    return f"from an escrow of {words.credits(escrow)} credits, shared by all devices"


def _pause(context: PageContext, requests: OpenRequests, settle: Any) -> None:
    about = "A paused device declines all work until you resume it."
    with card("Pause", about), ui.element("div").classes("c-row"):
        if requests.is_paused:
            button("Resume the device", "play_arrow", handler(context, lambda: settle(act="resume")), "c-primary")
        else:
            button("Pause the device", "pause", handler(context, lambda: settle(act="pause")))
        text("", "c-faint c-small").props("data-note=paused")


def _decided(context: PageContext, requests: OpenRequests) -> None:
    if not requests.decisions:
        return
    names = {task["id"]: task["specification"]["name"] for task in requests.tasks}
    with card("Your decisions"):
        if any(decision["state"] == "waiting" for decision in requests.decisions):
            note("hourglass_empty", "Your device reads decisions while it runs: coterie device run --home FOLDER.")
        with ui.element("div"):
            for item in requests.decisions[:SHOWN_DECISIONS]:
                icon, tone = STATES.get(item["state"], ("help", "info"))
                with ui.element("div").classes("c-item"):
                    ui.icon(icon).props("aria-hidden=true").style(f"color: var(--{tone})")
                    with ui.element("div"):
                        task = item["decided"].get("task", "")
                        about = names.get(task, words.short(task)) if task else ""
                        text(f"{ACTS.get(item['decided'].get('act'), 'Decision')} {about}".strip())
                        outcome = {"waiting": "waiting for the device", "done": "applied"}.get(item["state"], "")
                        reason = f": {item['note']}" if item["note"] else ""
                        outcome = outcome or "not applied"
                        text(f"{outcome}{reason} · {context.ago(item['at'])}", "c-faint c-small")


def draw_visibility(context: PageContext, joined: list[tuple[Json, list[Json]]]) -> None:
    """Draw who can see what the device sent, by task."""
    with card("Who can see what it sent"):
        if not joined:
            empty("visibility", "The device has not sent anything yet.", "Approve a task to take part.")
        for task, rounds in joined:
            spec = task["specification"]
            delivered = sum(1 for item in rounds if item["state"] == "delivered")
            with ui.expansion(spec["name"], caption=f"{delivered} of {words.count(len(rounds), 'round')} delivered"):
                with ui.element("div").classes("c-row"):
                    chip(task["state"])
                    text(f"last {context.ago(max(item['delivered_at'] for item in rounds))}", "c-faint c-small")
                facts(who_sees(spec))
