"""Figures of the trust domain: scores on the Facebook graph, relations of Santander, folding of interactions.

    COTERIE_DATA=<folder> python bench/trust_scores.py

Reads `facebook_combined.txt.gz` and `santander_siot.tar.gz` from the folder; without them the graph and the city are
synthetic and every line says so. All ratios come from one run on one machine.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from statistics import median
from typing import TypeVar

import networkx as nx
import numpy as np

from coterie_lab.datasets import santander
from coterie_lab.datasets.city import build_city
from services.trust.domain import relations, search
from services.trust.domain.evidence import EvidenceTable, Pieces, direct_trust_at, fold
from services.trust.domain.graph import TrustGraph
from services.trust.domain.parameters import TrustParameters
from services.trust.domain.population import Population, Stays
from services.trust.domain.scores import trust_from, trust_rows
from services.trust.readers.snap import read_ties

PARTICIPANTS = 250
SAMPLED_PAIRS = 200
Result = TypeVar("Result")


def main() -> None:
    """Prints every figure, with the number of cores."""
    folder = Path(os.environ.get("COTERIE_DATA", "data"))
    print(f"cores: {os.cpu_count()}")
    measure_scores(*load_graph(folder))
    measure_relations(folder)
    measure_evidence()


def load_graph(folder: Path) -> tuple[str, TrustGraph]:
    """The Facebook graph, or a synthetic one of its size; direct trust drawn uniformly from [0.1, 1]."""
    path = folder / "facebook_combined.txt.gz"
    if path.is_file():
        label, ends = "Facebook", np.array([(tie.a, tie.b) for tie in read_ties(path)])
    else:
        label, ends = "synthetic graph", np.array(nx.barabasi_albert_graph(4_039, 22, seed=1).edges)
    values = np.random.default_rng(1).uniform(0.1, 1.0, len(ends))
    return label, TrustGraph.from_ties(int(ends.max()) + 1, ends[:, 0], ends[:, 1], values)


def measure_scores(label: str, graph: TrustGraph) -> None:
    """One device to all others; the participants' matrix; the same by one networkx search per pair."""
    label = f"{label} ({graph.size:,} nodes, {graph.ties:,} ties)"
    compiling, _ = timed(search.warm_up)
    one = median(timed(partial(trust_from, graph, source, 0.8))[0] for source in range(0, graph.size, 97))
    print(f"{label}: compile once {compiling:.2f} s; one device to all others {one * 1e3:.2f} ms (median)")
    rng = np.random.default_rng(2)
    chosen = rng.choice(graph.size, PARTICIPANTS, replace=False)
    seconds = median(timed(lambda: trust_rows(graph, chosen, 0.8))[0] for _ in range(3))
    pairs = list(combinations(chosen.tolist(), 2))
    sample = [pairs[k] for k in rng.choice(len(pairs), SAMPLED_PAIRS, replace=False)]
    net: nx.Graph[int] = nx.Graph()
    net.add_weighted_edges_from(graph.edges())
    print(f"{label}: matrix of {PARTICIPANTS} participants {seconds:.3f} s")
    for name, baseline in (("any one shortest path", one_path), ("the best of all shortest paths", best_of_paths)):
        per_pair = timed(partial(answer_all, baseline, net, sample))[0] / len(sample)
        print(
            f"{label}: networkx, {name} per pair, {per_pair * 1e3:.3f} ms (mean of {len(sample)}) × {len(pairs):,} "
            f"pairs = {per_pair * len(pairs):.1f} s: {per_pair * len(pairs) / seconds:.0f} × slower"
        )


def answer_all(
    baseline: Callable[[nx.Graph[int], int, int], float], net: nx.Graph[int], pairs: list[tuple[int, int]]
) -> list[float]:
    """The baseline's answer for every pair."""
    return [baseline(net, a, b) for a, b in pairs]


def best_of_paths(net: nx.Graph[int], a: int, b: int) -> float:
    """τ as the spec defines it, by enumeration: the like-for-like comparison."""
    try:
        return max(path_product(net, path) for path in nx.all_shortest_paths(net, a, b))
    except nx.NetworkXNoPath:
        return 0.0


def path_product(net: nx.Graph[int], path: list[int]) -> float:
    """Product of the weights along a path."""
    return math.prod(float(net.edges[x, y]["weight"]) for x, y in pairwise(path))


def one_path(net: nx.Graph[int], a: int, b: int) -> float:
    """Product along any one shortest path: less than the spec asks, and quick where two searches meet in the middle."""
    try:
        path = nx.shortest_path(net, a, b)
    except nx.NetworkXNoPath:
        return 0.0
    return path_product(net, path)


def measure_relations(folder: Path) -> None:
    """Reading the city and deriving each kind of relation."""
    archive = folder / "santander_siot.tar.gz"
    if archive.is_file():
        label, (reading, (population, stays)) = "Santander", timed(lambda: santander.read_city(archive))
    else:
        reading, city = timed(lambda: build_city(4_000, seed=1))
        label, population, stays = city.label, city.population, city.stays
    print(f"{label}: {len(population):,} devices, {len(stays):,} stays in {reading:.1f} s")
    total = reading
    for name, derive in kinds(population, stays).items():
        seconds, count = timed(partial(count_relations, derive))
        total += seconds
        print(f"{label}: {name} {count:,} relations in {seconds:.2f} s")
    print(f"{label}: everything {total:.1f} s")


def kinds(population: Population, stays: Stays) -> dict[str, Callable[[], Iterator[relations.Relations]]]:
    """Name of each derived kind and how to derive it."""
    return {
        "OOR": lambda: relations.ownership(population),
        "POR": lambda: relations.parental(population, stays),
        "C-LOR": lambda: relations.co_location(population, stays),
        "SOR": lambda: relations.social(population, stays),
        "SOR2": lambda: relations.social_public(population, stays),
    }


def count_relations(derive: Callable[[], Iterator[relations.Relations]]) -> int:
    """How many relations there are, all of them made."""
    return sum(len(block) for block in derive())


def measure_evidence(count: int = 1_000_000, pairs: int = 100) -> None:
    """Folding a million interactions, and a score after a thousand and after a million, on the same pairs."""
    rng = np.random.default_rng(3)
    parameters, now = TrustParameters(), 1e7
    who, good = np.arange(count) % pairs, rng.random(count) < 0.9
    durations, at = rng.uniform(0, 90, count), rng.uniform(0, now, count)
    empty = EvidenceTable.empty(pairs)
    few = fold(empty, Pieces.of(who[:1_000], good[:1_000], durations[:1_000], at[:1_000]), parameters)
    seconds, many = timed(lambda: fold(empty, Pieces.of(who, good, durations, at), parameters))
    print(f"evidence: {count:,} interactions of {pairs:,} pairs folded in {seconds:.2f} s ({count / seconds:,.0f}/s)")
    short, long = (
        min(timed(partial(score_all, table, now, parameters))[0] for _ in range(50)) / pairs for table in (few, many)
    )
    print(
        f"evidence: a score costs {short * 1e6:.2f} µs after 1,000 interactions, {long * 1e6:.2f} µs after {count:,}: "
        f"{long / short:.2f} ×"
    )


def score_all(table: EvidenceTable, now: float, parameters: TrustParameters) -> list[float]:
    """Direct trust of every pair, one at a time."""
    return [direct_trust_at(table[pair], now, parameters) for pair in range(len(table))]


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """Seconds taken and what came out."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


if __name__ == "__main__":
    main()
