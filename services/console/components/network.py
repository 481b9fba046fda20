"""Drawings of devices and ties, clickable; the browser lays out small ones, the server large ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import events, ui

from services.console.components.charts import Palette, base, chart
from services.console.domain.layout import places
from services.console.domain.network import Drawing, Link, Node

ANIMATED_NODES = 80
NARROW_PIXELS = 480
"""Below this width, drawings start zoomed out, so that a phone shows all of them."""


def network(
    colours: Palette,
    drawing: Drawing,
    label: str,
    *,
    on_node: Callable[[str, str], Any] | None = None,
    on_link: Callable[[str, str], Any] | None = None,
    height: int = 560,
) -> ui.echart:
    """Draw the network; `on_node` gets a node's kind and id, `on_link` the two ends of a tie."""

    def clicked(event: events.EChartPointClickEventArguments) -> Any:
        data: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
        if event.data_type == "node" and on_node is not None and data.get("kind") in ("device", "group"):
            return on_node(str(data["kind"]), str(data["id"]))
        if event.data_type == "edge" and on_link is not None and data.get("kind") == "tie":
            return on_link(str(data["source"]), str(data["target"]))
        return None

    made = chart(options(colours, drawing), label, height=height, on_point_click=clicked)
    return made.classes("c-chart tall" if height >= 500 else "c-chart")


def options(colours: Palette, drawing: Drawing) -> dict[str, Any]:
    """Return the ECharts options of a drawing."""
    count = len(drawing.nodes)
    of = {node.id: node for node in drawing.nodes}
    nodes = [_node(colours, node) for node in drawing.nodes]
    is_animated = count <= ANIMATED_NODES
    if not is_animated:
        for node, (x, y) in zip(nodes, places(drawing).tolist(), strict=True):
            node |= {"x": round(500 * x, 1), "y": round(400 * y, 1)}
    return base(colours) | {
        "media": [{"query": {"maxWidth": NARROW_PIXELS}, "option": {"series": [{"zoom": 0.55}]}}],
        "series": [
            {
                "type": "graph",
                "layout": "force" if is_animated else "none",
                "roam": True,
                "zoom": 1,
                "center": None,
                "draggable": is_animated,
                "force": {
                    "initLayout": "circular",
                    # More nodes stand closer together, so that the drawing fits its frame.
                    "repulsion": min(1500.0, 12_000.0 / max(1, count)),
                    # Links of a plan are short; the ties behind them are long.
                    "edgeLength": [12, 70] if count > 30 else [60, 240],
                    "gravity": 0.22,
                    "friction": 0.3,
                    "layoutAnimation": True,
                },
                "scaleLimit": {"min": 0.3, "max": 8},
                "labelLayout": {"hideOverlap": True},
                "emphasis": {"focus": "adjacency", "label": {"show": True}, "lineStyle": {"opacity": 0.9}},
                "data": nodes,
                "links": [_link(colours, link, of) for link in drawing.links if link.a in of and link.b in of],
                "tooltip": {":formatter": TOOLTIP},
            }
        ],
    }


# Owners choose the names, so the browser escapes them.
TOOLTIP = """(p) => { const safe = (t) => String(t ?? '').replace(/[&<>"']/g, (c) => '&#' + c.charCodeAt(0) + ';');
 return p.dataType === 'edge' ? safe(p.data.about) : '<b>' + safe(p.data.name) + '</b><br>' + safe(p.data.about); }"""


def _node(colours: Palette, node: Node) -> dict[str, Any]:
    fill = colours.faint if node.group < 0 else colours.of(node.group)
    return {
        "id": node.id,
        "name": node.name,
        "kind": node.kind,
        "about": node.about,
        "symbol": node.shape,
        "symbolSize": node.size,
        "itemStyle": {
            "color": fill,
            "borderColor": colours.ink if node.ring else colours.surface,
            "borderWidth": 3 if node.ring else 1,
        },
        "label": {
            "show": node.labelled,
            "position": "right",
            "color": colours.ink,
            "fontSize": 12,
            "width": 140,
            "overflow": "truncate",
        },
    }


def _link(colours: Palette, link: Link, of: dict[str, Node]) -> dict[str, Any]:
    tones = {"faint": colours.faint, "good": colours.good, "warn": colours.warn, "bad": colours.bad}
    colour = colours.of(of[link.a].group) if link.tone == "group" else tones[link.tone]
    return {
        "source": link.a,
        "target": link.b,
        "kind": link.kind,
        "about": link.about,
        "value": 0 if link.tone == "faint" else 1,
        "lineStyle": {
            "width": link.width,
            "type": link.style,
            "color": colour,
            "opacity": 0.3 if link.tone == "faint" else 0.85,
        },
    }
