"""Drawings of the trust graph: filters and levels of detail keep every drawing small.

Up to `MOST_NODES` devices are drawn one by one, with their strongest ties. Larger graphs are drawn as groups, by owner
or by community; a click on a group, or a search, shows devices. 10,000 devices with 100,000 ties take milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.console.domain import words
from services.console.domain.network import Drawing, Link, Node

MOST_NODES, MOST_LINKS = 160, 500
SPREADING_STEPS = 12
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Devices and ties as arrays.

    Attributes:
        owner, community: group number of each device.
        a, b, trust: ties by device number, in either order; direct trust in [0, 1].
    """

    ids: list[str]
    names: list[str]
    devices: list[Mapping[str, Any]]
    number_of: dict[str, int]
    owner: Ints
    owner_ids: list[str]
    community: Ints
    a: Ints
    b: Ints
    trust: Floats
    relations: list[list[str]]
    at: float

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Graph:
        """Build the graph from the gateway's JSON."""
        devices = list(document["devices"])
        ids = [str(device["id"]) for device in devices]
        number_of = {device_id: number for number, device_id in enumerate(ids)}
        owner_ids, owner = np.unique([str(device["owner_id"]) for device in devices], return_inverse=True)
        ties = [item for item in document["ties"] if item["device_a"] in number_of and item["device_b"] in number_of]
        a = np.array([number_of[tie["device_a"]] for tie in ties], dtype=np.int64)
        b = np.array([number_of[tie["device_b"]] for tie in ties], dtype=np.int64)
        trust = np.array([tie["direct"] for tie in ties], dtype=np.float64)
        return cls(
            ids=ids,
            names=[str(device["name"]) for device in devices],
            devices=devices,
            number_of=number_of,
            owner=owner.astype(np.int64).reshape(-1),
            owner_ids=[str(item) for item in owner_ids],
            community=communities(len(ids), a, b, trust),
            a=a,
            b=b,
            trust=trust,
            relations=[list(tie["relations"]) for tie in ties],
            at=float(document["at"]),
        )

    def search(self, text: str, most: int = 20) -> list[int]:
        """Return devices whose name or id contains the text; names that begin with it come first."""
        wanted = text.strip().lower()
        result = [
            number
            for number, (name, device_id) in enumerate(zip(self.names, self.ids, strict=True))
            if wanted and (wanted in name.lower() or wanted in device_id)
        ]
        return sorted(result, key=lambda item: (not self.names[item].lower().startswith(wanted), self.names[item]))[
            :most
        ]


def communities(count: int, a: Ints, b: Ints, trust: Floats) -> Ints:
    """Find communities by label propagation: each device repeatedly takes the label with the most trust.

    The smaller label wins a draw, so that the same graph gives the same groups. Labels are numbered from 0 by size, the
    largest first.
    """
    label = np.arange(count, dtype=np.int64)
    rows, columns = np.concatenate([a, b]), np.concatenate([b, a])
    weight = np.concatenate([trust, trust])
    held = weight > 0
    rows, columns, weight = rows[held], columns[held], weight[held]
    for step in range(SPREADING_STEPS):
        # A small weight for its own label keeps pairs of devices from swapping labels for ever.
        every = np.concatenate([rows, np.arange(count)])
        pair = every * count + np.concatenate([label[columns], label])
        keys, inverse = np.unique(pair, return_inverse=True)
        sums = np.bincount(inverse, np.concatenate([weight, np.full(count, 1e-3)]))
        device, candidate = keys // count, keys % count
        order = np.lexsort((candidate, -sums, device))
        first = order[np.unique(device[order], return_index=True)[1]]
        new = label.copy()
        chosen = candidate[first]
        mover = (device[first] + step) % 2 == 0  # half of the devices per step, so that neighbours do not swap labels
        new[device[first][mover]] = chosen[mover]
        if step > 1 and np.array_equal(new, label):
            break
        label = new
    _, label, sizes = np.unique(label, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[label.reshape(-1)]


@dataclass(frozen=True, slots=True)
class Lens:
    """Selection of a part of a graph.

    Attributes:
        least: only ties with at least this direct trust.
        by: colours and groups: "owner" or "community".
        group: only this group, -1 for all.
        device: only this device and its neighbours; empty for all.
        state: only devices in this state; empty for all.
    """

    least: float = 0.0
    by: str = "community"
    group: int = -1
    device: str = ""
    state: str = "active"


def draw(graph: Graph, lens: Lens, owner_names: Mapping[str, str]) -> Drawing:
    """Draw the selected part: devices when there are few, groups when there are many."""
    groups = graph.owner if lens.by == "owner" else graph.community
    strong_enough = graph.trust >= lens.least
    chosen = _chosen(graph, lens, groups, strong_enough)
    if chosen.sum() > MOST_NODES and lens.group < 0 and not lens.device:
        return _groups(graph, lens, groups, chosen=chosen, strong_enough=strong_enough, owner_names=owner_names)
    return _devices(graph, lens, groups, chosen, strong_enough)


def _chosen(graph: Graph, lens: Lens, groups: Ints, strong_enough: NDArray[np.bool_]) -> NDArray[np.bool_]:
    chosen = np.ones(len(graph.ids), dtype=bool)
    if lens.state:
        chosen = np.array([device["state"] == lens.state for device in graph.devices], dtype=bool)
    if lens.group >= 0:
        chosen &= groups == lens.group
    if lens.device in graph.number_of:
        centre = graph.number_of[lens.device]
        near = np.zeros(len(graph.ids), dtype=bool)
        near[graph.b[strong_enough & (graph.a == centre)]] = True
        near[graph.a[strong_enough & (graph.b == centre)]] = True
        near[centre] = True
        chosen = near
    return chosen


def _devices(
    graph: Graph, lens: Lens, groups: Ints, chosen: NDArray[np.bool_], strong_enough: NDArray[np.bool_]
) -> Drawing:
    inside = strong_enough & chosen[graph.a] & chosen[graph.b]
    weight = np.bincount(graph.a[inside], graph.trust[inside], len(graph.ids))
    weight += np.bincount(graph.b[inside], graph.trust[inside], len(graph.ids))
    numbers = np.flatnonzero(chosen)
    whole = len(numbers)
    if whole > MOST_NODES:
        numbers = numbers[np.argsort(-weight[numbers], kind="stable")[:MOST_NODES]]
        if lens.device in graph.number_of:
            numbers = np.union1d(numbers, [graph.number_of[lens.device]])
    shown = np.zeros(len(graph.ids), dtype=bool)
    shown[numbers] = True
    ties = np.flatnonzero(inside & shown[graph.a] & shown[graph.b])
    all_ties = len(ties)
    if all_ties > MOST_LINKS:
        own = ties[_touches(graph, ties, lens.device)]  # a selected device retains all its ties
        rest = np.setdiff1d(ties, own)
        rest = rest[np.argsort(-graph.trust[rest], kind="stable")[: max(0, MOST_LINKS - len(own))]]
        ties = np.concatenate([own[:MOST_LINKS], rest])
    few = len(numbers) <= 100
    nodes = [
        Node(
            graph.ids[number],
            graph.names[number],
            int(groups[number]),
            size=30.0 if graph.ids[number] == lens.device else 12.0 + 3.0 * min(6.0, float(np.sqrt(weight[number]))),
            ring=graph.ids[number] == lens.device,
            about=str(graph.devices[number]["kind"] or "device"),
            labelled=few or graph.ids[number] == lens.device,
        )
        for number in numbers
    ]
    links = [tie_link(graph.ids[graph.a[t]], graph.ids[graph.b[t]], float(graph.trust[t])) for t in ties]
    summary = f"{len(nodes):,} of {whole:,} devices" if len(nodes) < whole else f"{whole:,} devices"
    more = f"the strongest {len(links):,} of {all_ties:,} ties" if len(links) < all_ties else f"{all_ties:,} ties"
    return Drawing(nodes, links, f"{summary}, {more}")


def _touches(graph: Graph, ties: Ints, device: str) -> NDArray[np.bool_]:
    centre = graph.number_of.get(device, -1)
    result: NDArray[np.bool_] = (graph.a[ties] == centre) | (graph.b[ties] == centre)
    return result


def tie_link(a: str, b: str, trust: float) -> Link:
    """Build the link of a tie; its width grows with the trust."""
    return Link(a, b, width=0.5 + 3.5 * trust, about=f"direct trust {trust:.3f}")


def _groups(
    graph: Graph,
    lens: Lens,
    groups: Ints,
    chosen: NDArray[np.bool_],
    strong_enough: NDArray[np.bool_],
    owner_names: Mapping[str, str],
) -> Drawing:
    count = int(groups.max()) + 1
    sizes = np.bincount(groups[chosen], minlength=count)
    order = np.argsort(-sizes, kind="stable")[:MOST_NODES]
    order = order[sizes[order] > 0]
    shown = np.zeros(count, dtype=bool)
    shown[order] = True
    inside = np.flatnonzero(strong_enough & chosen[graph.a] & chosen[graph.b])
    first, second = groups[graph.a[inside]], groups[graph.b[inside]]
    across = (first != second) & shown[first] & shown[second]
    low, high = np.minimum(first[across], second[across]), np.maximum(first[across], second[across])
    pairs, inverse, ties = np.unique(low * count + high, return_inverse=True, return_counts=True)
    mean = np.bincount(inverse, graph.trust[inside][across], len(pairs)) / np.maximum(1, ties)
    strongest = np.argsort(-ties, kind="stable")[:MOST_LINKS]
    most = max(1, int(ties.max())) if len(ties) else 1
    nodes = [_group_node(graph, lens, int(group), int(sizes[group]), owner_names) for group in order]
    links = [
        Link(
            _group_id(int(pairs[item] // count)),
            _group_id(int(pairs[item] % count)),
            width=0.5 + 4.0 * float(np.sqrt(ties[item] / most)),
            about=f"{ties[item]:,} ties, mean direct trust {mean[item]:.2f}",
            kind="",
        )
        for item in strongest
    ]
    noun = "owners" if lens.by == "owner" else "communities"
    all_groups = int((sizes > 0).sum())
    drawn = (
        f"the {len(nodes):,} largest of {all_groups:,} {noun}" if len(nodes) < all_groups else f"{all_groups:,} {noun}"
    )
    summary = f"{int(chosen.sum()):,} devices in {drawn}; {len(inside):,} ties. Click a circle to see its devices."
    return Drawing(nodes, links, summary)


def _group_node(graph: Graph, lens: Lens, group: int, size: int, owner_names: Mapping[str, str]) -> Node:
    if lens.by == "owner":
        owner_id = graph.owner_ids[group]
        name = owner_names.get(owner_id, owner_id)
    else:
        name = f"community {group + 1}"
    about = words.count(size, "device")
    return Node(
        _group_id(group),
        name,
        group,
        size=8.0 + 3.2 * float(np.sqrt(size)),
        about=about,
        kind="group",
        labelled=group < 12,
    )


def _group_id(group: int) -> str:
    return f"group:{group}"
