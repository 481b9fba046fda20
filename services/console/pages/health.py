"""Health: which services answer, with how many replicas, of which version they are, and how fast."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nicegui import ui

from services.console.components.actions import handler, view
from services.console.components.blocks import button, card, chip, facts, grid, heading, note, say, text
from services.console.components.contexts import PageContext
from services.console.components.frame import ADMINS, Pages
from services.console.domain import words
from services.console.wire.platform import Json
from services.kit.observability.latency import WINDOW_CALLS

REFRESH_SECONDS = 5.0
ABOUT = {
    "trust": "owners, devices, keys, interactions, trust",
    "topology": "plans, links, cells, policies",
    "pricing": "prices, accounts, payments, privacy charges",
    "aggregation": "tasks, rounds, models, letters",
}


def add(pages: Pages) -> None:
    """Registers the page."""
    pages.add("/health", "Health", ADMINS, show)


@dataclass(frozen=True, slots=True)
class HealthData:
    """How the platform answered just now."""

    services: dict[str, str]
    told: dict[str, Json]
    """What each says of itself: version, commit, certificates, replicas with their pace."""
    seconds: float
    contract: str


async def show(context: PageContext) -> None:
    """Draws the page."""
    with heading("Health", "Which services answer, with how many replicas, of which version, and how fast."):
        pass
    contract: Json = await context.platform.contract()
    about = f"{contract['info']['title']} REST v{contract['info']['version']}, {len(contract['paths'])} paths"

    async def read() -> HealthData:
        began = time.perf_counter()
        result = await context.platform.health()
        seconds = round(time.perf_counter() - began, 3)
        told = (await context.platform.get("/v1/versions"))["services"]
        return HealthData(dict(result["services"]), dict(told), seconds, about)

    await view(context, read, lambda found: _draw(context, found), every_seconds=REFRESH_SECONDS)
    _blobs(context)


def _blobs(context: PageContext) -> None:
    """What is stored, counted when asked: it means looking at every file."""
    with card("Stored models, updates and letters"):
        place = ui.element("div").classes("c-stack")
        with place:
            text("Counting looks at everything stored, and changes nothing.", "c-faint")

        async def count() -> None:
            result = await context.platform.count_blobs()
            place.clear()
            with place:
                facts(
                    [
                        ("Stored", words.count(result["seen"], "blob")),
                        ("Needed by nobody", f"{result['orphans']:,}, {words.size(result['orphan_bytes'])} together"),
                    ]
                )
                if result["orphans"]:
                    text("`coterie blobs sweep` removes what nobody needs.", "c-faint c-small")

        button("Count", "inventory_2", handler(context, count))


def _build(told: Json) -> str:
    """Version and commit of a service in a few words; empty of one that is away."""
    if not told["version"]:
        return ""
    return f"version {told['version']}" + (f", commit {told['commit'][:12]}" if told["commit"] else "")


def _draw(context: PageContext, found: HealthData) -> None:
    away = [name for name, state in found.services.items() if state != "serving"]
    if away:
        note(
            "cloud_off",
            f"{', '.join(away)} {'does' if len(away) == 1 else 'do'} not answer. Look at the service's log.",
            "bad",
        )
    else:
        note("verified", "Every service answers.", "good")
    replicas = [item for told in found.told.values() for item in told.get("replicas", ())]
    lost = [replica for replica in replicas if replica["state"] != "serving"]
    if lost and not away:
        note("cloud_off", f"{words.count(len(lost), 'replica')} of services that answer did not.", "warn")
    if len({_build(item) for item in (*found.told.values(), *replicas)} - {""}) > 1:
        note("difference", "Not all services are of the same version. Upgrade them together.", "warn")
    with grid(240, even=True):
        for name, state in {"gateway": "serving", **found.services}.items():
            with card(label=name):
                with ui.element("div").classes("c-row").style("justify-content: space-between"):
                    say("h2", name)
                    chip(state)
                text(ABOUT.get(name, "REST for devices, publishers and admins"), "c-faint c-small")
                _told(context, found.told.get(name, {}))
    with card("Answering"):
        facts(
            [
                ("Gateway asks all services", f"{words.span(found.seconds)} from here and back"),
                ("Contract", found.contract),
                ("Gateway", context.app.settings.gateway_url),
            ]
        )
        text(
            f"Times of a service are those of its last {WINDOW_CALLS:,} calls, measured in it; calls that wait for "
            "something to happen are left out. Of several gateways the one that answered is shown. Counts and times "
            "of every method are on the metrics pages (COTERIE_METRICS_PORT).",
            "c-faint c-small",
        )


def _told(context: PageContext, told: Json) -> None:
    """What a service says of itself, and each of its replicas."""
    text((told and _build(told)) or "version not known while it is away", "c-faint c-small c-num")
    if told.get("certificate_ends_at"):
        text(f"certificate good until {context.moment(told['certificate_ends_at'])}", "c-faint c-small c-num")
    replicas = told.get("replicas", ())
    if len(replicas) > 1:
        text(f"{len(replicas)} replicas", "c-small")
    for replica in replicas:
        text((f"{replica['name'] or 'one'}: " if len(replicas) > 1 else "") + _pace(replica), "c-faint c-small c-num")


def _pace(replica: Json) -> str:
    """How fast a replica answers, in words."""
    if replica["state"] != "serving":
        return "does not answer"
    if not replica["calls"]:
        return "has answered no call yet"
    half, most = (words.span(replica[name]) for name in ("p50_seconds", "p95_seconds"))
    return f"half of {words.count(replica['calls'], 'call')} within {half}, 95 % within {most}"
