"""Draw plans as pictures and as GraphML. Needs networkx, and matplotlib for pictures; both are imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.errors import CoterieError
from coterie.records import Assignment, Plan, Role

if TYPE_CHECKING:
    import networkx as nx

PLATFORM = "platform"
PICTURES = (".png", ".svg", ".pdf")
RAW, NOISED, HEAD, PLAIN, INK, FAINT = "#2a9d8f", "#e76f51", "#264653", "#8ab6b0", "#22313a", "#b8c2c8"
_LAYOUT_SEED = 7
_INCHES, _DOTS = 8.0, 160


class CannotDraw(CoterieError):
    """The file type is unknown, or a library is missing."""


def draw_plan(plan: Plan, file: Path) -> None:
    """Write a plan to a file: a picture (.png, .svg, .pdf) or a graph (.graphml)."""
    kind = file.suffix.lower()
    if kind not in (*PICTURES, ".graphml"):
        raise CannotDraw(f"--draw {file}: end the name in .png, .svg, .pdf or .graphml")
    try:
        import networkx as nx
    except ImportError as error:
        raise CannotDraw("drawing needs networkx: pip install networkx matplotlib") from error
    graph = plan_graph(plan)
    if kind == ".graphml":
        nx.write_graphml(graph, file)
    else:
        _picture(graph, plan, file)


def plan_graph(plan: Plan) -> nx.Graph[str]:
    """Make the graph of a plan: devices with their assignments, links with trust, weight and seconds.

    A mesh has links between devices, clusters have links from members to heads and from heads to the platform, every
    other topology has a link from each device to the platform.
    """
    import networkx as nx

    names = plan.details.get("names", {})
    graph: nx.Graph[str] = nx.Graph(task=plan.task_id, version=plan.version, topology=plan.topology)
    for assignment in plan.assignments:
        graph.add_node(
            assignment.device_id,
            label=names.get(assignment.device_id, _short(assignment.device_id)),
            role=str(assignment.role),
            group=assignment.group,
            noised=bool(assignment.noised or assignment.noise_multiplier > 0),
            batch_size=assignment.batch_size,
            because=assignment.because,
        )
    for assignment in plan.assignments:
        for source, target, values in _links(assignment, plan.topology):
            if target == PLATFORM and PLATFORM not in graph:
                graph.add_node(PLATFORM, label=PLATFORM, role=PLATFORM, group=-1, noised=False)
            graph.add_edge(source, target, **values)
    return graph


def _links(assignment: Assignment, topology: str) -> list[tuple[str, str, dict[str, Any]]]:
    device = assignment.device_id
    if topology == "mesh":
        return [
            (device, n.device_id, {"trusted": n.trusted, "weight": n.weight, "seconds": n.link_seconds})
            for n in assignment.neighbours
        ]
    if assignment.role == Role.IDLE:
        return []
    to = assignment.head_device_id if assignment.role == Role.MEMBER else PLATFORM
    return [(device, to, {"trusted": assignment.noise_multiplier == 0, "weight": assignment.weight})]


def _short(device_id: str) -> str:
    return f"…{device_id[-6:]}"


def _picture(graph: nx.Graph[str], plan: Plan, file: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CannotDraw("pictures need matplotlib: pip install matplotlib, or write .graphml") from error
    figure = Figure(figsize=(_INCHES, _INCHES * 0.82), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    positions = _positions(graph)
    _draw_links(axes, graph, positions)
    _draw_devices(axes, graph, positions)
    _write_text(axes, graph, plan)
    figure.savefig(file, dpi=_DOTS, facecolor="white")


def _positions(graph: nx.Graph[str]) -> dict[str, Any]:
    """Lay the graph out deterministically, with neighbours near each other and room for labels."""
    import networkx as nx

    if len(graph) < 3 or not nx.is_connected(graph):
        return dict(nx.spring_layout(graph, seed=_LAYOUT_SEED, k=1.2))
    start = nx.circular_layout(graph)
    return dict(nx.kamada_kawai_layout(graph, pos=start, weight=None))


def _draw_links(axes: Any, graph: nx.Graph[str], positions: Mapping[str, Any]) -> None:
    import networkx as nx

    for trusted, style, colour in ((True, "solid", RAW), (False, "dashed", NOISED)):
        pairs = [(a, b) for a, b, values in graph.edges(data=True) if values.get("trusted", True) == trusted]
        nx.draw_networkx_edges(graph, positions, pairs, ax=axes, style=style, edge_color=colour, width=2.0, alpha=0.85)
    if 0 < graph.number_of_edges() <= 60:
        times = {(a, b): _seconds(v["seconds"]) for a, b, v in graph.edges(data=True) if v.get("seconds")}
        box = {"alpha": 0.85, "facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.15"}
        nx.draw_networkx_edge_labels(
            graph, positions, times, ax=axes, font_size=7, font_color=INK, bbox=box, rotate=False
        )


def _draw_devices(axes: Any, graph: nx.Graph[str], positions: Mapping[str, Any]) -> None:
    import networkx as nx

    size = 900 if len(graph) <= 40 else 12_000 / len(graph) ** 0.85
    colours = {node: _colour(values) for node, values in graph.nodes(data=True)}
    nx.draw_networkx_nodes(
        graph,
        positions,
        ax=axes,
        node_size=[size * (1.6 if graph.nodes[node]["role"] in ("head", PLATFORM) else 1.0) for node in graph],
        node_color=[colours[node] for node in graph],
        edgecolors="white",
        linewidths=2.0,
    )
    if len(graph) <= 80:
        height = (
            max(position[1] for position in positions.values()) - min(position[1] for position in positions.values())
            or 1.0
        )
        for node, (x, y) in positions.items():
            axes.text(x, y - 0.055 * height, graph.nodes[node]["label"], **_LABEL)


_LABEL: dict[str, Any] = {
    "ha": "center",
    "va": "top",
    "fontsize": 8.5,
    "color": INK,
    "bbox": {"alpha": 0.75, "facecolor": "white", "edgecolor": "none", "boxstyle": "round,pad=0.1"},
}


def _colour(values: Mapping[str, Any]) -> str:
    if values["role"] in ("head", PLATFORM):
        return HEAD
    if values["role"] == "idle":
        return FAINT
    return NOISED if values["noised"] else (RAW if values["role"] == "peer" else PLAIN)


def _write_text(axes: Any, graph: nx.Graph[str], plan: Plan) -> None:
    from matplotlib.lines import Line2D

    devices = [node for node in graph if node != PLATFORM]
    noisy = sum(bool(graph.nodes[node]["noised"]) for node in devices)
    about = f"{len(devices)} devices, {graph.number_of_edges()} links, {noisy} add noise"
    if plan.round_seconds:
        about += f", a round takes {_seconds(plan.round_seconds)} (planned)"
    axes.set_title(f"Plan {plan.version}: {plan.topology}", loc="left", fontsize=14, color=INK, weight="bold")
    axes.text(0.0, 1.0, about, transform=axes.transAxes, fontsize=9, color=INK, va="top")
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 9, "markeredgecolor": "white"}
    keys = [
        Line2D([], [], color=RAW, lw=2, label="between trusted devices"),
        Line2D([], [], color=NOISED, lw=2, linestyle="dashed", label="between strangers, noised"),
        Line2D([], [], color=NOISED, label="device that adds noise", **dot),
    ]
    axes.legend(handles=keys, loc="lower right", frameon=False, fontsize=8, labelcolor=INK)
    axes.set_axis_off()
    axes.margins(0.14)


def _seconds(value: float) -> str:
    return f"{value * 1000:.2g} ms" if value < 0.1 else f"{value:.3g} s"
