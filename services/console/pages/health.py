"""Health: state, replicas, version and latency of each service."""

from __future__ import annotations

import time
from dataclasses import dataclass

from nicegui import ui

from services.console.components.actions import handler, view
from services.console.components.blocks import button, card, chip, facts, grid, heading, note, text, text_element
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
    "aggregation": "tasks, rounds, models, messages",
}


def add(pages: Pages) -> None:
    pages.add("/health", "Health", ADMINS, show)


@dataclass(frozen=True, slots=True)
class HealthData:
    """State of the platform at one moment."""

    services: dict[str, str]
    versions: dict[str, Json]
    """Version, commit, certificate and replicas with their latency, by service."""
    seconds: float
    contract: str


async def show(context: PageContext) -> None:
    with heading("Health", "State, replicas, version and latency of each service."):
        pass
    contract: Json = await context.platform.contract()
    about = f"{contract['info']['title']} REST v{contract['info']['version']}, {len(contract['paths'])} paths"

    async def read() -> HealthData:
        began = time.perf_counter()
        result = await context.platform.health()
        seconds = round(time.perf_counter() - began, 3)
        versions = (await context.platform.get("/v1/versions"))["services"]
        return HealthData(dict(result["services"]), dict(versions), seconds, about)

    await view(context, read, lambda data: _draw(context, data), every_seconds=REFRESH_SECONDS)
    _blobs(context)


def _blobs(context: PageContext) -> None:
    """Draw the storage card; it counts on request, because counting reads every file."""
    with card("Stored models, updates and messages"):
        place = ui.element("div").classes("c-stack")
        with place:
            text("Counting reads all stored files and changes nothing.", "c-faint")

        async def count() -> None:
            result = await context.platform.count_blobs()
            place.clear()
            with place:
                facts(
                    [
                        ("Stored", words.count(result["seen"], "blob")),
                        ("Unused", f"{result['orphans']:,}, {words.size(result['orphan_bytes'])} in total"),
                    ]
                )
                if result["orphans"]:
                    text("`coterie blobs sweep` deletes unused blobs.", "c-faint c-small")

        button("Count", "inventory_2", handler(context, count))


def _build(version: Json) -> str:
    """Format version and commit of a service; empty if it does not answer."""
    if not version["version"]:
        return ""
    return f"version {version['version']}" + (f", commit {version['commit'][:12]}" if version["commit"] else "")


def _draw(context: PageContext, data: HealthData) -> None:
    away = [name for name, state in data.services.items() if state != "serving"]
    if away:
        note(
            "cloud_off",
            f"{', '.join(away)} {'does' if len(away) == 1 else 'do'} not answer. Check the service's log.",
            "bad",
        )
    else:
        note("verified", "All services answer.", "good")
    replicas = [item for version in data.versions.values() for item in version.get("replicas", ())]
    lost = [replica for replica in replicas if replica["state"] != "serving"]
    if lost and not away:
        note("cloud_off", f"{words.count(len(lost), 'replica')} of running services did not answer.", "warn")
    if len({_build(item) for item in (*data.versions.values(), *replicas)} - {""}) > 1:
        note("difference", "The services run different versions. Upgrade them together.", "warn")
    with grid(240, even=True):
        for name, state in {"gateway": "serving", **data.services}.items():
            with card(label=name):
                with ui.element("div").classes("c-row").style("justify-content: space-between"):
                    text_element("h2", name)
                    chip(state)
                text(ABOUT.get(name, "REST for devices, publishers and admins"), "c-faint c-small")
                _draw_version(context, data.versions.get(name, {}))
    with card("Latency"):
        facts(
            [
                ("Health check of all services", f"{words.span(data.seconds)} from the console through the gateway"),
                ("Contract", data.contract),
                ("Gateway", context.app.settings.gateway_url),
            ]
        )
        text(
            f"Latencies cover the last {WINDOW_CALLS:,} calls of a service, measured there, without long-polling "
            "calls. With several gateways, the page shows the one that answered. The metrics endpoint "
            "(COTERIE_METRICS_PORT) has counts and latencies of every method.",
            "c-faint c-small",
        )


def _draw_version(context: PageContext, version: Json) -> None:
    """Draw version, certificate and replicas of a service."""
    text((version and _build(version)) or "version unknown while it does not answer", "c-faint c-small c-num")
    if version.get("certificate_ends_at"):
        text(f"certificate valid until {context.moment(version['certificate_ends_at'])}", "c-faint c-small c-num")
    replicas = version.get("replicas", ())
    if len(replicas) > 1:
        text(f"{len(replicas)} replicas", "c-small")
    for replica in replicas:
        text(
            (f"{replica['name'] or 'one'}: " if len(replicas) > 1 else "") + _latency(replica), "c-faint c-small c-num"
        )


def _latency(replica: Json) -> str:
    """Format the latency of a replica."""
    if replica["state"] != "serving":
        return "does not answer"
    if not replica["calls"]:
        return "no calls yet"
    p50, p95 = (words.span(replica[name]) for name in ("p50_seconds", "p95_seconds"))
    return f"p50 {p50}, p95 {p95} of {words.count(replica['calls'], 'call')}"
