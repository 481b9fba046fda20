"""Drawings of plans over the trust graph: clusters with heads, trusted and noised mesh links, cells with blocks.

Like large graphs, large plans are drawn as groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.console.domain import words
from services.console.domain.graph import MOST_LINKS, MOST_NODES, Graph
from services.console.domain.names import Names
from services.console.domain.network import PLATFORM, Drawing, Link, Node

Assignment = Mapping[str, Any]


def draw_plan(plan: Mapping[str, Any], graph: Graph | None, names: Mapping[str, str]) -> Drawing:
    """Draw a plan; if the graph is known, its ties appear faintly behind the plan.

    A cell with a separate station process has a ring.
    """
    assignments: Sequence[Assignment] = plan["assignments"]
    if len(assignments) > MOST_NODES:
        return _large(plan, assignments)
    draw = {"clusters": _clusters, "mesh": _mesh, "cells": _cells}.get(str(plan["topology"]), _star)
    nodes, links = draw(assignments, plan, names)
    taken = {frozenset((link.a, link.b)) for link in links}
    behind = [tie for tie in _ties(graph, {node.id for node in nodes}) if frozenset((tie.a, tie.b)) not in taken]
    return Drawing(nodes, [*behind[: max(0, MOST_LINKS - len(links))], *links], _summary(plan, assignments))


def _ties(graph: Graph | None, shown: set[str]) -> list[Link]:
    if graph is None:
        return []
    result = [
        (float(graph.trust[tie]), graph.ids[graph.a[tie]], graph.ids[graph.b[tie]])
        for tie in range(len(graph.trust))
        if graph.ids[graph.a[tie]] in shown and graph.ids[graph.b[tie]] in shown
    ]
    result.sort(reverse=True)
    return [Link(a, b, 0.5 + 1.5 * trust, about=f"direct trust {trust:.3f}") for trust, a, b in result]


def _clusters(
    assignments: Sequence[Assignment], _: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[list[Node], list[Link]]:
    nodes = [
        Node(
            assignment["device_id"],
            names.get(assignment["device_id"], assignment["device_id"]),
            assignment["group"],
            size=30.0 if assignment["role"] == "head" else 18.0,
            ring=assignment["role"] == "head",
            about=f"{assignment['role']} · {noise_words(assignment)}",
        )
        for assignment in assignments
    ]
    links = [
        Link(
            assignment["device_id"],
            assignment["head_device_id"],
            width=3.0,
            style="dashed" if assignment["noise_multiplier"] else "solid",
            tone="group",
            about=f"sends to its head, {noise_words(assignment)}",
        )
        for assignment in assignments
        if assignment["role"] == "member" and assignment["head_device_id"]
    ]
    return nodes, links


def _mesh(
    assignments: Sequence[Assignment], _: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[list[Node], list[Link]]:
    nodes = [
        Node(
            assignment["device_id"],
            names.get(assignment["device_id"], assignment["device_id"]),
            3 if assignment["noised"] else 0,
            size=22.0,
            shape="diamond" if assignment["noised"] else "circle",
            about=f"{'adds noise' if assignment['noised'] else 'no noise'} · batch {assignment['batch_size']}",
        )
        for assignment in assignments
    ]
    links: dict[frozenset[str], Link] = {}
    for assignment in assignments:
        for other in assignment["neighbours"]:
            trusted = bool(other["trusted"])
            about = f"{'trusted' if trusted else 'untrusted, so noised'} · {1000 * other['link_seconds']:.1f} ms"
            links.setdefault(
                frozenset((assignment["device_id"], other["device_id"])),
                Link(
                    assignment["device_id"],
                    other["device_id"],
                    width=2.5,
                    style="solid" if trusted else "dashed",
                    tone="good" if trusted else "warn",
                    about=about,
                ),
            )
    return nodes, list(links.values())


def _cells(
    assignments: Sequence[Assignment], plan: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[list[Node], list[Link]]:
    cells = list(plan["details"].get("cells", []))
    station_of = {row.cell: row for row in stations_of(plan)}
    nodes = [
        Node(
            f"cell:{number}",
            str(cell["id"]),
            number,
            size=34.0,
            shape="roundRect",
            ring=station_of[cell["id"]].has_decided,
            about=f"{cell['served']} of {cell['blocks']} blocks in use · {station_of[cell['id']].explanation}",
            kind="place",
        )
        for number, cell in enumerate(cells)
    ]
    links = []
    for assignment in assignments:
        served = 0 <= assignment["group"] < len(cells) and assignment["role"] != "idle"
        about = (
            f"block {assignment['block']} · {1000 * assignment['upload_seconds']:.0f} ms to upload"
            if served
            else "waits this round"
        )
        name = names.get(assignment["device_id"], assignment["device_id"])
        nodes.append(Node(assignment["device_id"], name, assignment["group"] if served else -1, about=about))
        if served:
            links.append(
                Link(assignment["device_id"], f"cell:{assignment['group']}", 2.5, tone="group", about=about, kind="")
            )
    return nodes, links


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell of a plan and the decision about its users.

    `has_decided` tells whether its own station decided; `explanation` says so in words.
    """

    cell: str
    served: int
    blocks: int
    has_decided: bool
    explanation: str


def stations_of(plan: Mapping[str, Any]) -> list[CellRow]:
    """Return the cells of a plan with the decisions of their stations."""
    details = plan["details"]
    decided, lost = details.get("q_values") or {}, details.get("lost") or {}
    rows = []
    for item in details.get("cells", []):
        cell = str(item["id"])
        if cell in lost:
            explanation = f"left out: {lost[cell]}"
        elif cell in decided:
            explanation = f"its own station decided, with value {words.number(float(decided[cell]))}"
        else:
            explanation = "the planner decided for it"
        has_decided = cell in decided and cell not in lost
        rows.append(CellRow(cell, int(item["served"]), int(item["blocks"]), has_decided, explanation))
    return rows


def _star(
    assignments: Sequence[Assignment], _: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[list[Node], list[Link]]:
    nodes = [Node(PLATFORM, "platform", -1, size=36.0, shape="roundRect", about="aggregates all updates", kind="place")]
    links = []
    for assignment in assignments:
        name = names.get(assignment["device_id"], assignment["device_id"])
        nodes.append(Node(assignment["device_id"], name, 0, about=noise_words(assignment)))
        links.append(
            Link(assignment["device_id"], PLATFORM, 1.5, tone="group", about="uploads to the platform", kind="")
        )
    return nodes, links


def _large(plan: Mapping[str, Any], assignments: Sequence[Assignment]) -> Drawing:
    sizes = Counter(assignment["group"] for assignment in assignments)
    nodes = [
        Node(
            f"group:{group}",
            "unclustered or waiting" if group < 0 else f"group {group + 1}",
            group,
            size=8.0 + 3.2 * size**0.5,
            about=words.count(size, "device"),
            kind="place",
            labelled=number < 12,
        )
        for number, (group, size) in enumerate(sizes.most_common(MOST_NODES))
    ]
    return Drawing(nodes, [], f"{_summary(plan, assignments)}; drawn as groups, the table lists every device")


def describe_move(move: Mapping[str, Any], names: Names) -> str:
    """Describe a move that keeps clusters from being individually stable; `to` is empty for leaving a cluster."""
    target = ", ".join(names.device(member) for member in move["to"])
    return f"{names.device(move['device'])} would gain by {f'joining {target}' if target else 'leaving its cluster'}"


def noise_words(assignment: Assignment) -> str:
    """Describe the noise of an assignment."""
    noise = float(assignment["noise_multiplier"])
    if assignment["role"] == "idle":
        return "sends nothing"
    if assignment["noised"] and not noise:
        return "adds noise"
    return f"noise σ = {noise:.3g} × clip norm" if noise else "no noise"


def _summary(plan: Mapping[str, Any], assignments: Sequence[Assignment]) -> str:
    roles = Counter(str(assignment["role"]) for assignment in assignments)
    count = words.count(len(assignments), "device")
    topology = plan["topology"]
    if topology == "clusters":
        # An unclustered device has the role "solo".
        alone = words.count(roles["solo"], "device")
        return f"{count}: {words.count(roles['head'], 'cluster')} with a head, {alone} unclustered"
    if topology == "mesh":
        links = {frozenset((s["device_id"], o["device_id"])) for s in assignments for o in s["neighbours"]}
        return f"{count}, {len(links)} links, {sum(bool(s['noised']) for s in assignments)} devices add noise"
    if topology == "cells":
        return f"{count}: {len(assignments) - roles['idle']} served by a base station, {roles['idle']} wait"
    return f"{count}, all of which upload to the platform"


LEGENDS: dict[str, tuple[tuple[str, str], ...]] = {
    "clusters": (
        ("ring", "head of a cluster"),
        ("solid", "sends to its head without noise"),
        ("dashed", "sends with noise"),
        ("faint", "tie of trust"),
    ),
    "mesh": (
        ("good", "trusted link: parameters without noise"),
        ("warn", "untrusted link: noised parameters"),
        ("faint", "tie of trust that the plan does not use"),
    ),
    "cells": (
        ("square", "cell"),
        ("ring", "cell with its own station process"),
        ("solid", "upload on a block of the cell"),
        ("faint", "tie of trust"),
    ),
    "star": (("square", "platform"), ("faint", "tie of trust")),
}
"""Meaning of the marks of each kind of plan."""
