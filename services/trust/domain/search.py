"""Breadth-first search with the best product per layer, for indirect trust ([SCFL] eq (2), spec §1.2), and the search
for the best product of all paths of up to three ties (spec §1.3a).

The loops are plain Python that numba compiles in about 1.5 s, so small questions run in the interpreter until a larger
one (or `warm_up`) has compiled the loops; both run the same lines and return the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers, Paths, TrustGraph

EDGES_WORTH_COMPILING = 50_000
"""Edge visits above which compiling is faster than interpreting (about 0.5 µs each)."""

MOST_TIES = 3
"""Longest path when the best path counts, in ties."""

_compiled: dict[Paths, Callable[..., int]] = {}
_compiling = threading.Lock()


def best_products(graph: TrustGraph, sources: Integers, targets: Integers) -> Floats:
    """Return τ from every source (rows) to every target (columns); 1 for the same device, 0 without a path.

    One search per source, O(devices + ties) each; a search stops at the layer that reaches its last target.
    """
    rows = np.zeros((len(sources), len(targets)))
    search = _search(graph.paths, len(sources) * len(graph.indices))
    wanted = np.zeros(graph.size, dtype=np.bool_)
    wanted[targets] = True
    missing = int(wanted.sum())
    hops, products, parents, queue = _blank(graph.size)
    arrays = (graph.indptr, graph.indices, graph.values)
    for k, source in enumerate(sources):
        reached = search(arrays, source, wanted, missing, (hops, products, parents, queue))
        rows[k] = products[targets]
        seen = queue[:reached]  # only these entries must be reset
        hops[seen], products[seen], parents[seen] = -1, 0.0, -1
    return rows


def search_from(graph: TrustGraph, source: int) -> tuple[npt.NDArray[np.int32], Floats, Integers]:
    """Return hops, best product and parent on the best path for every device from `source`; −1, 0, −1 unreached.

    With `Paths.BEST` a parent is only the last device before the end: a better, longer path may lead to the parent
    itself. `best_path` walks back by the number of ties left of three.
    """
    search = _search(graph.paths, len(graph.indices))
    hops, products, parents, queue = _blank(graph.size)
    wanted = np.zeros(graph.size, dtype=np.bool_)
    search((graph.indptr, graph.indices, graph.values), source, wanted, -1, (hops, products, parents, queue))
    return hops, products, parents


def warm_up(paths: Paths = Paths.SHORTEST) -> None:
    """Compile the search now instead of during the first large question."""
    _compile(paths)
    graph = replace(TrustGraph.from_ties(2, [0], [1], [1.0]), paths=paths)
    both = np.arange(2, dtype=np.int64)
    best_products(graph, both, both)
    search_from(graph, 0)


def _blank(size: int) -> tuple[npt.NDArray[np.int32], Floats, Integers, Integers]:
    unseen = np.full(size, -1, dtype=np.int32)
    return unseen, np.zeros(size), np.full(size, -1, dtype=np.int64), np.empty(size, dtype=np.int64)


def _search(paths: Paths, edge_visits: int) -> Callable[..., int]:
    return _compile(paths) if paths in _compiled or edge_visits >= EDGES_WORTH_COMPILING else _LOOPS[paths]


def _compile(paths: Paths) -> Callable[..., int]:
    with _compiling:
        if paths not in _compiled:
            import numba  # imported here: it takes 0.5 s and most processes never need it

            _compiled[paths] = numba.njit(nogil=True)(_LOOPS[paths])
    return _compiled[paths]


def _search_layers(  # type: ignore[no-untyped-def]  # numba infers the types
    graph, source, wanted, missing, state
):
    """Fill `state` (hops, products, parents, queue) from `source`; return the number of reached devices.

    When layer d is expanded every product in it is final, because all its parents lie in layer d−1: hence one pass.
    Equal products keep the smaller parent, so that the path is the same on every machine. The search ends early once
    `missing` wanted devices are reached and their layer is complete (−1: never).

    A layer is expanded from the side with fewer ties: from its own devices, or from the unreached ones, each of which
    looks for its parents. Social networks reach their few hubs first, and most other devices through them.
    """
    indptr, indices, values = graph
    hops, products, parents, queue = state
    hops[source] = 0
    products[source] = 1.0
    queue[0] = source
    start, end = 0, 1
    if wanted[source]:
        missing -= 1
    ties = indptr[source + 1] - indptr[source]  # of the layer
    left = len(indices) - ties  # of the unreached devices
    while start < end < len(hops) and missing != 0:
        layer_end = end
        next_hop = hops[queue[start]] + 1
        if ties <= left:
            for place in range(start, layer_end):
                node = queue[place]
                so_far = products[node]
                for k in range(indptr[node], indptr[node + 1]):
                    other = indices[k]
                    if hops[other] == -1:
                        hops[other] = next_hop
                        products[other] = so_far * values[k]
                        parents[other] = node
                        queue[end] = other
                        end += 1
                    elif hops[other] == next_hop:
                        product = so_far * values[k]
                        if product > products[other] or (product == products[other] and node < parents[other]):
                            products[other] = product
                            parents[other] = node
        else:
            for other in range(len(hops)):
                if hops[other] != -1:
                    continue
                for k in range(indptr[other], indptr[other + 1]):
                    node = indices[k]
                    if hops[node] != next_hop - 1:
                        continue
                    product, parent = products[node] * values[k], parents[other]
                    if parent == -1 or product > products[other] or (product == products[other] and node < parent):
                        products[other] = product
                        parents[other] = node
                if parents[other] != -1:
                    hops[other] = next_hop
                    queue[end] = other
                    end += 1
        ties = 0
        for place in range(layer_end, end):
            node = queue[place]
            ties += indptr[node + 1] - indptr[node]
            if wanted[node]:
                missing -= 1
        left -= ties
        start = layer_end
    return end


def _search_three(  # type: ignore[no-untyped-def]  # as above
    graph, source, wanted, missing, state
):
    """The same for the best paths of up to three ties; `wanted` and `missing` end nothing early.

    With D_k the best product of up to k ties, D_k(v) = max(D_{k−1}(v), max_u D_{k−1}(u)·e(u, v)): only devices whose
    product the last pass raised have a new product to pass on, which is the one before this pass.
    """
    indptr, indices, values = graph
    hops, products, parents, queue = state
    hops[source] = 0
    products[source] = 1.0
    queue[0] = source
    end = 1
    for ties in range(1, MOST_TIES + 1):
        reached = queue[:end]
        raised = reached[hops[reached] == ties - 1]
        before = products[raised]
        for place in range(len(raised)):
            node = raised[place]
            for k in range(indptr[node], indptr[node + 1]):
                other = indices[k]
                product = before[place] * values[k]
                if hops[other] == -1:
                    queue[end] = other
                    end += 1
                elif product <= products[other]:
                    continue
                hops[other] = ties
                products[other] = product
                parents[other] = node
    return end


_LOOPS: dict[Paths, Callable[..., int]] = {Paths.SHORTEST: _search_layers, Paths.BEST: _search_three}
