"""Layout of many nodes on a plane: springs along links, repulsion between all, computed on arrays.

The browser lays out small drawings, animated and draggable; hundreds of nodes would block it for most of a second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from services.console.domain.network import Drawing

STEPS = 35


def places(drawing: Drawing, steps: int = STEPS) -> NDArray[np.float64]:
    """Return (n, 2) coordinates in [-1, 1]; the same drawing gives the same coordinates.

    Forces of Fruchterman and Reingold: d²/k along links, k²/d between all, with decreasing steps. A pull to the centre
    keeps unconnected parts in the frame.
    """
    count = len(drawing.nodes)
    if count < 2:
        return np.zeros((count, 2))
    number = {node.id: index for index, node in enumerate(drawing.nodes)}
    ends = np.array([(number[link.a], number[link.b]) for link in drawing.links], dtype=np.int64).reshape(-1, 2)
    pull = np.array([link.width for link in drawing.links]) / max((link.width for link in drawing.links), default=1.0)
    order = np.argsort(np.argsort([node.group for node in drawing.nodes], kind="stable"), kind="stable")
    angle = 2.0 * np.pi * order / count  # nodes of a group start side by side
    place = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ideal = np.sqrt(4.0 / count)
    for step in range(steps):
        # Σ_j (p_i − p_j) w_ij = p_i Σ_j w_ij − Σ_j w_ij p_j, so that no (n, n, 2) array is needed.
        length = (place**2).sum(axis=1)
        squared = np.maximum(length[:, None] + length[None, :] - 2.0 * place @ place.T, 1e-6)
        push = ideal**2 / squared
        force = place * (push.sum(axis=1)[:, None] - ideal) - push @ place
        along = place[ends[:, 0]] - place[ends[:, 1]]
        spring = along * (np.sqrt((along**2).sum(axis=1)) / ideal * pull)[:, None]
        for axis in (0, 1):
            force[:, axis] -= np.bincount(ends[:, 0], spring[:, axis], count)
            force[:, axis] += np.bincount(ends[:, 1], spring[:, axis], count)
        strength = np.maximum(np.sqrt((force**2).sum(axis=1, keepdims=True)), 1e-9)
        place = place + force / strength * np.minimum(strength, 0.2 * (1.0 - step / steps) + 0.005)
    place -= (place.max(axis=0) + place.min(axis=0)) / 2.0
    return place / max(float(np.abs(place).max()), 1e-9)
