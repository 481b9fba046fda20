"""Device profiles and explanations of ties."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from nicegui import ui

from services.console.components.actions import handler
from services.console.components.blocks import bar, card, chip, facts, link, link_button, note, text
from services.console.components.charts import chart, lines, palette
from services.console.components.contexts import PageContext
from services.console.domain import words
from services.console.domain.graph import Graph
from services.console.domain.names import Names
from services.console.wire.platform import Json

MOST_PEERS = 15
MOST_INTERACTIONS = 20
STATES = {
    "unconfirmed": " (unconfirmed: the other device has not reported it)",
    "expired": " (not counted: the other device never reported it)",
    "surplus": " (not counted: above the daily cap)",
}
"""Explanation of interactions that do not count."""


async def show_device(
    context: PageContext, device_id: str, names: Names, graph: Graph | None, open_tie: Callable[[str, str], Any]
) -> None:
    """Draw a device's profile, its most trusted peers, and its recent interactions."""
    device, peers = await asyncio.gather(_device(context, device_id, graph), _peers(context, device_id, graph))
    with card(device["name"]):
        with ui.element("div").classes("c-row"):
            chip(device["state"])
            text(device["kind"] or "no kind given", "c-faint")
        facts(
            [
                ("Owner", names.owner(device["owner_id"])),
                ("Brand and model", " ".join(filter(None, (device["brand"], device["model"]))) or "not given"),
                ("Last seen", context.ago(device["last_seen_at"])),
                ("Registered", context.moment(device["registered_at"])),
                ("Keys", f"version {device['key_version']}"),
                ("Place", _place(device)),
                ("Link", _link(device)),
                ("Id", device["id"]),
            ]
        )
        if context.is_admin:
            link_button("Privacy spent", "shield", f"/privacy?device={device_id}")
            link_button("Earnings", "payments", f"/payments?account=device:{device_id}")
    with card("Trusts most", "Trust ranges from 0 (none) to 1 (full)."):
        if not peers:
            text(
                "No ties yet. Trust grows with interactions and good behaviour in rounds.",
                "c-faint",
            )
        for peer in peers:
            _peer(context, device_id, peer, names, open_tie)
    if context.is_admin:
        await _history(context, device_id, names)


async def _device(context: PageContext, device_id: str, graph: Graph | None) -> Json:
    if context.is_admin:
        return await context.platform.get(f"/v1/devices/{device_id}")
    assert graph is not None
    return dict(graph.devices[graph.number_of[device_id]])


async def _peers(context: PageContext, device_id: str, graph: Graph | None) -> list[Json]:
    if context.is_admin:
        return list((await context.platform.get(f"/v1/trust/peers/{device_id}", limit=MOST_PEERS))["items"])
    assert graph is not None
    centre = graph.number_of[device_id]
    ties = [(graph.b[t], t) for t in (graph.a == centre).nonzero()[0]]
    ties += [(graph.a[t], t) for t in (graph.b == centre).nonzero()[0]]
    result = [{"device_id": graph.ids[peer], "trust": float(graph.trust[t])} for peer, t in ties]
    return sorted(result, key=lambda item: -float(item["trust"]))[:MOST_PEERS]


def _peer(context: PageContext, device_id: str, peer: Json, names: Names, open_tie: Callable[[str, str], Any]) -> None:
    other, trust = str(peer["device_id"]), float(peer["trust"])
    name = names.device(other)
    with ui.element("button").classes("c-peer") as row:
        row.props["aria-label"] = f"Why {trust:.2f} with {name}"
        text(name, "c-grow")
        with ui.element("div").style("width: 90px; flex: none"):
            bar(trust, f"Trust in {name}", thin=True)
        text(f"{trust:.2f}", "c-num")
    row.on("click", handler(context, lambda: open_tie(device_id, other)), args=[])


async def _history(context: PageContext, device_id: str, names: Names) -> None:
    items, _ = await context.platform.page("/v1/interactions", device_a=device_id, limit=MOST_INTERACTIONS)
    with card("Recent interactions", "Newest first."):
        if not items:
            text("No interactions yet.", "c-faint")
        for item in items:
            _interaction(context, device_id, item, names)


def _interaction(context: PageContext, device_id: str, interaction: Json, names: Names) -> None:
    other = interaction["device_b"] if interaction["device_a"] == device_id else interaction["device_a"]
    with ui.element("div").classes("c-item"):
        good = interaction["positive"]
        ui.icon("thumb_up" if good else "thumb_down").props("aria-hidden=true").style(
            f"color: var(--{'good' if good else 'bad'}); font-size: 18px"
        )
        with ui.element("div"):
            did = interaction["kind"] or "interaction"
            lasted = f", {words.span(interaction['duration_seconds'])}" if interaction["duration_seconds"] else ""
            counts = STATES.get(interaction.get("state", ""), "")
            text(f"{did} with {names.device(other)} went {'well' if good else 'badly'}{lasted}{counts}")
            text(
                f"{context.ago(interaction['at'])}{' · ' + interaction['note'] if interaction['note'] else ''}",
                "c-faint c-small",
            )


async def show_tie(context: PageContext, a: str, b: str, names: Names, graph: Graph | None) -> None:
    """Draw why two devices trust each other; admins also see the history."""
    with card(f"{names.device(a)} and {names.device(b)}"):
        if not context.is_admin:
            _tie_of_graph(a, b, graph)
            return
        pair, history = await asyncio.gather(
            context.platform.get(f"/v1/trust/pairs/{a}/{b}"), context.platform.get(f"/v1/trust/pairs/{a}/{b}/history")
        )
        text(pair["text"])
        facts(
            [
                ("Trust", words.number(pair["trust"], 3)),
                ("Direct", f"{words.number(pair['direct'], 3)} from their interactions"),
                ("Indirect", f"{words.number(pair['indirect'], 3)} along the best path"),
                ("Positive", f"{pair['positive_count']:,}"),
                ("Negative", f"{pair['negative_count']:,}"),
                ("Unconfirmed", f"{pair.get('unconfirmed_count', 0):,} wait for the other device"),
                ("Last interaction", context.ago(pair["last_at"])),
            ]
        )
        _path(pair, names)
        for relation in pair["relations"]:
            note("diversity_3", f"{relation['kind']} ({relation['strength']:.2f}): {relation['because']}")
        points = [(item["at"] * 1000.0, item["direct"]) for item in history["items"]]
        if len(points) > 1:
            colours = palette(context.dark)
            curve = lines(colours, [("direct trust", points)], across="", up="direct trust", time=True)
            chart(curve, "Direct trust of the pair over time", height=200)
    with ui.element("div").classes("c-row"):
        for device_id in (a, b):
            link(f"Profile of {names.device(device_id)}", f"/trust?device={device_id}")


def _tie_of_graph(a: str, b: str, graph: Graph | None) -> None:
    assert graph is not None
    first, second = graph.number_of[a], graph.number_of[b]
    hits = ((graph.a == first) & (graph.b == second)) | ((graph.a == second) & (graph.b == first))
    for tie in hits.nonzero()[0]:
        trust = float(graph.trust[tie])
        text(f"Their direct trust is {trust:.3f}: 0 is none, 1 is full.")
        if graph.relations[tie]:
            text(f"Relations: {', '.join(graph.relations[tie])}.")
    text("Only the two owners and admins see the interactions.", "c-faint c-small")


def _path(pair: Json, names: Names) -> None:
    hops = pair["path"]
    if len(hops) < 2:
        return
    steps = [names.device(hops[0]["from_device"])]
    steps += [f"({hop['direct']:.2f}) {names.device(hop['to_device'])}" for hop in hops]
    text(f"Best path: {' → '.join(steps)}", "c-small")


def _place(device: Json) -> str:
    location = device["location"]
    return f"{location['x_metres']:.0f} m, {location['y_metres']:.0f} m from the origin" if location else "not given"


def _link(device: Json) -> str:
    able = device["capabilities"] or {}
    return str(able.get("link_class") or "not given")
