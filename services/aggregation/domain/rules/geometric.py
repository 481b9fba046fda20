"""The geometric median: the point whose weighted distances to all updates sum to the least.

K. Pillutla, S. M. Kakade, Z. Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022; Y. Vardi,
C.-H. Zhang, "The multivariate L1-median and associated data depth", PNAS 2000.

It lies at one of the updates, or between them where the sum f of distances has a gradient. Which of the two is decided
first, exactly; between them, Weiszfeld's steps lead near and Newton's the rest of the way. f is convex and the median
is among the updates, so f(z) − min f ≤ ‖∇f(z)‖ · (largest distance from z): the search ends when that is proven small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.aggregation.domain.rules.geometry import Cloud
from services.aggregation.domain.rules.rows import Matrix, Vector
from services.aggregation.domain.rules.verdict import Mixture

GAP = 1e-13
"""Proven distance from the least sum, as a share of it, at which the search ends."""
FLAT = 1e-12
"""Points this much thinner than long, across their main direction, lie on a line."""
WARM_STEPS = 20
MAX_STEPS = 500
PARTS = tuple(0.5**halvings for halvings in range(12))
"""Parts of Newton's step that are tried: beside a point close by, all of it leads too far."""


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of the points that make up the median, steps taken, and the proven gap as a share of the sum."""

    shares: Vector
    steps: int
    gap: float


@dataclass(frozen=True, slots=True)
class GeometricMedian:
    """See the module."""

    def origin(self, elements: int) -> None:
        """None: see `Linear`."""

    def judge(self, cloud: Cloud) -> Mixture:
        """All updates count, distant ones less."""
        # Equal updates are one point of their weights' sum: rounding must not set them apart.
        first: dict[bytes, int] = {}
        group = np.array([first.setdefault(label, len(first)) for label in cloud.labels])
        _, places = np.unique(group, return_index=True)
        weights = np.bincount(group, cloud.weights).astype(np.float64)
        shares = median(cloud.coordinates()[places], weights).shares
        return Mixture(shares[group] * cloud.weights / weights[group])


def median(points: Matrix, weights: Vector) -> Found:
    """The geometric median of points (rows), as shares of them that sum to 1."""
    centred = points - points.mean(axis=0)
    if not centred.any():
        return Found(weights / weights.sum(), 0, 0.0)
    _, widths, directions = np.linalg.svd(centred, full_matrices=False)
    if len(widths) == 1 or widths[1] <= FLAT * widths[0]:
        return Found(_on_a_line(centred @ directions[0], weights), 0, 0.0)
    vertex = _best_vertex(centred, weights)
    if vertex is not None:
        shares = np.zeros(len(points))
        shares[vertex] = 1.0
        return Found(shares, 0, 0.0)
    return _search(centred, weights)


def _on_a_line(places: Vector, weights: Vector) -> Vector:
    """Halfway between the two middle points, which are the same one unless weights balance exactly."""
    order = np.argsort(places, kind="stable")
    reached = np.cumsum(weights[order])
    half = reached[-1] / 2
    tolerance = 1e-12 * reached[-1]
    shares = np.zeros(len(places))
    for place in (np.argmax(reached >= half - tolerance), np.argmax(reached > half + tolerance)):
        shares[order[place]] += 0.5
    return shares


def _best_vertex(points: Matrix, weights: Vector) -> int | None:
    """The point that is the median itself: where the others' pull, a unit vector each, does not exceed its weight."""
    norms = np.einsum("ij,ij->i", points, points)
    squared = norms[:, None] + norms - 2 * points @ points.T
    # Only the point with the least sum can be it; its pull is then computed without subtracting large numbers.
    sums = np.sqrt(np.maximum(squared, 0.0)) @ weights
    for vertex in np.argsort(sums, kind="stable")[:2]:
        away = points - points[vertex]
        distances = np.linalg.norm(away, axis=1)
        own = float(weights[distances == 0].sum())
        if np.linalg.norm(_pulls(distances, weights) @ away) <= own * (1 + 1e-12):
            return int(vertex)
    return None


def _search(points: Matrix, weights: Vector) -> Found:
    here = weights @ points / weights.sum()
    best, gap = here, np.inf
    for step in range(1, MAX_STEPS + 1):
        away = points - here
        distances = np.linalg.norm(away, axis=1)
        pulls = _pulls(distances, weights)
        total = float(weights @ distances)
        down = pulls @ away
        here_weight = float(weights[distances == 0].sum())
        if here_weight:  # on a point that is not the median: leave it the way Vardi and Zhang do
            here = here + down / pulls.sum() * (1 - here_weight / float(np.linalg.norm(down)))
            continue
        reached = float(np.linalg.norm(down) * distances.max()) / total
        if reached < gap:
            best, gap = here, reached
        if gap <= GAP:
            break
        weiszfeld = here + down / pulls.sum()
        if step <= WARM_STEPS:
            here = weiszfeld
            continue
        leap = _newton(away, distances, pulls, down)
        part = next((part for part in PARTS if _sum(points, here + part * leap, weights) < total), 0.0)
        if not part and reached <= 1e-10:
            break  # nothing left that numbers of this size can show
        here = here + part * leap if part else weiszfeld
    pulls = _pulls(np.linalg.norm(points - best, axis=1), weights)
    return Found(pulls / pulls.sum(), step, gap)


def _sum(points: Matrix, place: Vector, weights: Vector) -> float:
    """Sum of distances from a place."""
    return float(weights @ np.linalg.norm(points - place, axis=1))


def _pulls(distances: Vector, weights: Vector) -> Vector:
    """weight / distance, 0 at no distance."""
    return np.divide(weights, distances, out=np.zeros(len(weights)), where=distances > 0)


def _newton(away: Matrix, distances: Vector, pulls: Vector, down: Vector) -> Vector:
    """H⁻¹·(−∇f), with H = Σ pullᵢ·(I − uᵢuᵢᵀ) for the unit vectors uᵢ towards the points."""
    units = away / distances[:, None]
    hessian = -(units.T * pulls) @ units
    hessian[np.diag_indices_from(hessian)] += pulls.sum()
    return np.asarray(np.linalg.lstsq(hessian, down, rcond=None)[0], np.float64)
