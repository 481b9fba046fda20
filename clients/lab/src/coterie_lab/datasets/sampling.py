"""A connected part of a social graph that is too large to be used whole: breadth first from a random node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from services.kit.errors import InvalidInput

Ties = Iterable[tuple[int, int]]


class TooSmall(InvalidInput):
    """No connected part of the graph has this many nodes."""


def connected_sample(ties: Ties, count: int, rng: np.random.Generator) -> list[int]:
    """`count` nodes, sorted, that ties among them connect: whom one node reaches in the fewest steps.

    The start is drawn among the nodes of components that are large enough; neighbours are visited in a drawn order, so
    that a popular node's own are not always the same.
    """
    around: dict[int, list[int]] = {}
    for a, b in ties:
        around.setdefault(a, []).append(b)
        around.setdefault(b, []).append(a)
    roomy = sorted(node for part in _components(around) if len(part) >= count for node in part)
    if not roomy or count < 1:
        raise TooSmall(f"no connected part of this graph has {count} nodes; ask for fewer")
    start = int(rng.choice(roomy))
    seen, waiting = {start}, deque([start])
    while waiting:
        neighbours = sorted(set(around[waiting.popleft()]) - seen)
        for node in rng.permutation(neighbours).tolist():
            if len(seen) == count:
                return sorted(seen)
            seen.add(node)
            waiting.append(node)
    return sorted(seen)


def _components(around: dict[int, list[int]]) -> list[list[int]]:
    left, parts = set(around), []
    while left:
        part, waiting = [], [left.pop()]
        while waiting:
            node = waiting.pop()
            part.append(node)
            fresh = left.intersection(around[node])
            left -= fresh
            waiting.extend(fresh)
        parts.append(part)
    return parts
