"""Breadth-first search with the best product per layer: the loop behind indirect trust. [SCFL] eq (2), spec §1.2.

The loops below are plain Python that numba compiles. Compiling costs about a second and a half, so a question that
touches few edges is answered by the interpreter until some larger one (or `warm_up`) has made the compiled loops;
both run the same lines, so the answers are the same bits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from services.trust.domain.graph import Floats, Integers, TrustGraph

EDGES_WORTH_COMPILING = 50_000
"""Edge visits above which compiling is quicker than interpreting (about 0.5 µs each)."""

_compiled: list[Callable[..., int]] = []
_compiling = threading.Lock()


def best_products(graph: TrustGraph, sources: Integers, targets: Integers) -> Floats:
    """τ from every source (rows) to every target (columns); 1 where they are the same device, 0 without a path.

    One search per source, O(devices + ties) each; a search stops at the layer that reaches its last target.
    """
    rows = np.zeros((len(sources), len(targets)))
    search = _search(len(sources) * len(graph.indices))
    wanted = np.zeros(graph.size, dtype=np.bool_)
    wanted[targets] = True
    missing = int(wanted.sum())
    hops, products, parents, queue = _blank(graph.size)
    for k, source in enumerate(sources):
        reached = search(
            graph.indptr, graph.indices, graph.values, source, wanted, missing, hops, products, parents, queue
        )
        rows[k] = products[targets]
        seen = queue[:reached]  # only what this search touched has to be wiped
        hops[seen], products[seen], parents[seen] = -1, 0.0, -1
    return rows


def search_from(graph: TrustGraph, source: int) -> tuple[npt.NDArray[np.int32], Floats, Integers]:
    """Hops, best product and parent on the best path for every device as seen from `source`; −1, 0, −1 unreached."""
    search = _search(len(graph.indices))
    hops, products, parents, queue = _blank(graph.size)
    wanted = np.zeros(graph.size, dtype=np.bool_)
    search(graph.indptr, graph.indices, graph.values, source, wanted, -1, hops, products, parents, queue)
    return hops, products, parents


def warm_up() -> None:
    """Compiles the search now rather than during the first large question."""
    _compile()
    graph = TrustGraph.from_ties(2, [0], [1], [1.0])
    both = np.arange(2, dtype=np.int64)
    best_products(graph, both, both)
    search_from(graph, 0)


def _blank(size: int) -> tuple[npt.NDArray[np.int32], Floats, Integers, Integers]:
    unseen = np.full(size, -1, dtype=np.int32)
    return unseen, np.zeros(size), np.full(size, -1, dtype=np.int64), np.empty(size, dtype=np.int64)


def _search(edge_visits: int) -> Callable[..., int]:
    return _compile() if _compiled or edge_visits >= EDGES_WORTH_COMPILING else _search_layers


def _compile() -> Callable[..., int]:
    with _compiling:
        if not _compiled:
            import numba  # imported here because it takes half a second and most processes never need it

            _compiled.append(numba.njit(nogil=True)(_search_layers))
    return _compiled[0]


def _search_layers(  # type: ignore[no-untyped-def]  # numba types it; Any annotations would say nothing
    indptr, indices, values, source, wanted, missing, hops, products, parents, queue
):
    """Fills hops, products, parents and the queue from `source`; returns how many devices were reached.

    When layer d is expanded every product in it is final, because all its parents lie in layer d−1: hence one pass.
    Equal products keep the smaller parent, so that the path is the same on every machine. The search ends early once
    `missing` wanted devices are reached and their layer is complete (−1: never).
    """
    hops[source] = 0
    products[source] = 1.0
    queue[0] = source
    start, end = 0, 1
    if wanted[source]:
        missing -= 1
    while start < end and missing != 0:
        layer_end = end
        for place in range(start, layer_end):
            node = queue[place]
            so_far, next_hop = products[node], hops[node] + 1
            for k in range(indptr[node], indptr[node + 1]):
                other = indices[k]
                if hops[other] == -1:
                    hops[other] = next_hop
                    products[other] = so_far * values[k]
                    parents[other] = node
                    queue[end] = other
                    end += 1
                    if wanted[other]:
                        missing -= 1
                elif hops[other] == next_hop:
                    product = so_far * values[k]
                    if product > products[other] or (product == products[other] and node < parents[other]):
                        products[other] = product
                        parents[other] = node
        start = layer_end
    return end
