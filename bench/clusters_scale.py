"""Cost of cluster formation for 100, 1,000, the Facebook graph's 4,039 and 10,000 devices.

    python bench/clusters_scale.py [--data DIR] [--method sweep|rounds] [--effect strong|weak] [--sizes 100 1000 ...]

Formation starts from singletons and ends with the independent checker's verdict; `form` includes restarts and checks,
`check` is one more check alone. CPU seconds of one thread beside wall-clock seconds. Sizes other than 4,039
are synthetic graphs with the Facebook network's degrees (see `coterie_lab.cluster_games.grow`); without data, with a
power law's. Compilation is warmed up first and not counted.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from coterie_lab import cluster_games
from services.topology.domain.coalition import singletons
from services.topology.domain.formation import form
from services.topology.domain.stability import blocking_move


def main() -> None:
    """Prints one line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("COTERIE_DATA"))
    parser.add_argument("--method", choices=["sweep", "rounds"], default="sweep")
    parser.add_argument("--effect", choices=["strong", "weak"], default="strong")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 4_039, 10_000])
    options = parser.parse_args()
    network = cluster_games.load_network(options.data)
    print(f"network: {network.label}; {options.method}, {options.effect} effects, from singletons")
    print(
        "devices    ties  form cpu s  wall s  check cpu s  sweeps  transfers  clusters  mean payoff  stable  far rows"
    )
    for size in [60, *options.sizes]:
        random = np.random.default_rng(size)
        graph = network if size == network.size else cluster_games.grow(network, size, random)
        game = cluster_games.play_on(graph, options.effect, random)
        started, clock = time.process_time(), time.perf_counter()
        result = form(game, singletons(size), options.method, search=False)
        formed, wall = time.process_time(), time.perf_counter() - clock
        blocking_move(game, result.partition)
        checked = time.process_time()
        if size == 60:
            continue
        far_rows = int((game.tables.slot >= 0).sum()) if size > 1024 else 0
        print(
            f"{size:7d} {game.graph.ties:7d} {formed - started:11.2f} {wall:7.2f} {checked - formed:12.2f} "
            f"{result.iterations:7d} {len(result.transfers):10d} {len(result.clusters):9d} "
            f"{result.payoff.mean():12.3f}  "
            f"{result.stable!s:6s} {far_rows:9d}",
            flush=True,
        )


if __name__ == "__main__":
    main()
