"""[CAPP]'s networks and surveys: four subgraphs of the Facebook ego network with the sizes of the paper's Table I.

Without `facebook_combined.txt.gz` in the data folder the subgraphs come from a generator. Plans are the pricing
service's own.
"""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.stats import truncnorm

from services.pricing.domain.collection import collect, required
from services.pricing.domain.correlated_users import Survey, accuracy, hidden_variances, marginal, privacy_loss
from services.pricing.domain.influence import Matrix

FACEBOOK = "facebook_combined.txt.gz"


@dataclass(frozen=True, slots=True)
class Shape:
    """Vertices, edges and largest degree of a network of Table I."""

    vertices: int
    edges: int
    degree: int


SHAPES = {"S1": Shape(20, 99, 14), "S2": Shape(30, 232, 22), "S3": Shape(40, 371, 25), "S4": Shape(50, 571, 27)}
BUDGETS = list(range(100, 1501, 100))
MEANS = [0.5 * k for k in range(1, 11)]
SPREADS = [0.05 * k for k in range(1, 21)]
SATURATION = {"S1": 300, "S2": 600, "S3": 800, "S4": 1200}
FINAL_LOSS = {"S1": 6.79, "S2": 6.48, "S3": 6.21, "S4": 6.02}
"""The specification's budgets of saturation and last mean losses, from other draws."""


def load_facebook(folder: Path | None) -> NDArray[np.bool_] | None:
    """Adjacency of the ego network, or None where the file is not there."""
    path = None if folder is None else folder / FACEBOOK
    if path is None or not path.exists():
        return None
    with gzip.open(path, "rt") as lines:
        edges = np.loadtxt(lines, dtype=np.int64)
    n = int(edges.max()) + 1
    if (n, len(edges)) != (4039, 88234):
        raise ValueError(f"{path} holds {n} nodes and {len(edges)} edges; the published file has 4039 and 88234")
    return _adjacency(n, edges)


def generate(shape: Shape, generator: np.random.Generator) -> NDArray[np.bool_]:
    """A stand-in for a subgraph: a ring and random chords, one vertex of the largest degree, none above it."""
    n = shape.vertices
    ring = np.arange(n)
    graph = _adjacency(n, np.column_stack([ring, (ring + 1) % n]))
    for j in generator.permutation(np.arange(2, n - 1))[: shape.degree - 2]:
        graph[0, j] = graph[j, 0] = True
    while graph.sum() // 2 < shape.edges:
        i, j = generator.choice(n, 2, replace=False)
        if max(graph[i].sum(), graph[j].sum()) < shape.degree:
            graph[i, j] = graph[j, i] = True
    return graph


def _adjacency(n: int, edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    graph = np.zeros((n, n), dtype=bool)
    graph[edges[:, 0], edges[:, 1]] = graph[edges[:, 1], edges[:, 0]] = True
    np.fill_diagonal(graph, False)
    return graph


def find_subgraph(graph: NDArray[np.bool_], shape: Shape, generator: np.random.Generator) -> NDArray[np.bool_]:
    """A connected induced subgraph with exactly the vertices, edges and largest degree of `shape`, by annealing.

    A move swaps one vertex for another of the same neighbourhood; the energy is the distance in edges plus all degrees'
    excess over the largest. Starts again in another neighbourhood of about the right density when the schedule
    ends without a hit.
    """
    degrees = graph.sum(axis=1)
    hosts = np.flatnonzero(degrees >= 2 * shape.degree)
    density = 2 * shape.edges / shape.vertices**2
    for _ in range(2_000):
        host = int(generator.choice(hosts))
        pool = np.flatnonzero(graph[host])
        if pool.size > 400:
            pool = generator.choice(pool, 400, replace=False)
        if abs(float(graph[np.ix_(pool, pool)].mean()) - density) > 0.12:
            continue
        result = _anneal(graph[np.ix_(pool, pool)], shape, generator)
        if result is not None:
            return result
    raise RuntimeError(f"no subgraph with {shape} inner; use another seed")


def _anneal(graph: NDArray[np.bool_], shape: Shape, generator: np.random.Generator) -> NDArray[np.bool_] | None:
    n = graph.shape[0]
    if n <= shape.vertices:
        return None
    inside = np.zeros(n, dtype=bool)
    inside[generator.choice(n, shape.vertices, replace=False)] = True
    links = graph[:, inside].sum(axis=1)

    def energy(inside: NDArray[np.bool_], links: NDArray[np.int64]) -> float:
        degrees = links[inside]
        over = np.maximum(degrees - shape.degree, 0).sum()
        return abs(int(degrees.sum()) // 2 - shape.edges) + float(over) + abs(int(degrees.max()) - shape.degree)

    current = energy(inside, links)
    for heat in np.geomspace(10.0, 0.2, 6_000):
        leaving = int(generator.choice(np.flatnonzero(inside)))
        entering = int(generator.choice(np.flatnonzero(~inside)))
        moved = inside.copy()
        moved[[leaving, entering]] = False, True
        changed = links + graph[:, entering] - graph[:, leaving].astype(np.int64)
        trial = energy(moved, changed)
        if trial <= current or generator.uniform() < math.exp((current - trial) / heat):
            inside, links, current = moved, changed, trial
        if current == 0 and _connected(graph[np.ix_(inside, inside)]):
            inner: NDArray[np.bool_] = graph[np.ix_(inside, inside)]
            return inner
    return None


def _connected(graph: NDArray[np.bool_]) -> bool:
    return connected_components(graph, directed=False)[0] == 1


def draw_weights(graph: NDArray[np.bool_], mean: float, generator: np.random.Generator) -> Matrix:
    """w_ij ~ N(mean, 0.02²) truncated above 0, symmetric, on the edges."""
    drawn = truncnorm.rvs(-mean / 0.02, math.inf, loc=mean, scale=0.02, size=graph.shape, random_state=generator)
    upper = np.triu(np.where(graph, drawn, 0.0), 1)
    return np.asarray(upper + upper.T)


def draw_care(
    graph: NDArray[np.bool_], spread: float, generator: np.random.Generator, *, all_pairs: bool = False
) -> Matrix:
    """s_ij ~ N(0, spread²) truncated to [0, 1]: on the edges and for oneself, or for `all_pairs`."""
    drawn = truncnorm.rvs(0.0, 1.0 / spread, scale=spread, size=graph.shape, random_state=generator)
    return np.asarray(drawn if all_pairs else np.where(graph | np.eye(len(graph), dtype=bool), drawn, 0.0))


@dataclass(frozen=True, slots=True)
class Point:
    """One plan: its status, certified accuracy, unclipped 1 − Λ/ε², and mean privacy loss."""

    status: str
    accuracy: float
    unclipped: float
    loss: float


def measure(weights: Matrix, care: Matrix, *, budget: float, constant: float, error_squared: float) -> Point:
    """Plan a survey under the paper's variance and summarise it."""
    survey = Survey(hidden_variances(weights), care, constant, 0.01, math.exp(constant))
    plan = collect(survey, budget)
    loss = float(privacy_loss(survey, plan.total).mean())
    return Point(plan.status, accuracy(plan.total, math.sqrt(error_squared)), 1 - plan.total / error_squared, loss)


def negative_variances(weights: Matrix, care: Matrix, budget: float) -> int:
    """How many users the paper's P2 (all users inside at one common base) would ask for a negative variance."""
    survey = Survey(hidden_variances(weights), care)
    total = collect(survey, budget).total
    cost, f = required(survey, total), marginal(survey, total)
    base = (total + float(np.sum(cost / f))) / float(np.sum(1 / f))
    return int((base < cost).sum())


def saturation(weights: Matrix, care: Matrix) -> float:
    """The budget from which all users answer with the least noise: Σ c_i(n q_lo)."""
    survey = Survey(hidden_variances(weights), care)
    return float(required(survey, survey.users * survey.variance_low).sum())
