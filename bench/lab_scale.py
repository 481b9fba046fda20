"""10,000 devices, all in every round, for 100 rounds: clusters by trust, noise, prices and ledgers, in one process.

`python bench/lab_scale.py [devices] [rounds]`. The network has the Facebook graph's degrees where COTERIE_DATA holds
it, otherwise a power law's. Devices form clusters once, train every round (the small MLP, 50 examples each), release by
the device's own code with the noise that trust leaves due, are paid by the market's price of the round and charged in a
ledger. Goal: under 10 minutes and under 4 GB.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parent / "anchors"))

import work  # of the anchors' folder

from coterie.privacy.gaussian import exact_epsilon
from coterie_lab import cluster_games as games
from coterie_lab import federations as fed
from coterie_lab.cohorts import Cohort, Lesson, changes, kernel_for, parameters_of
from services.pricing.domain.budgets import Market
from services.pricing.domain.followers import linear_response
from services.pricing.domain.influence import leakage
from services.pricing.domain.leaders import exact_price
from services.topology.domain.coalition import singletons
from services.topology.domain.formation import form

CLIP, DELTA = 0.5, 1e-5


def run(devices: int = 10_000, rounds: int = 100) -> None:
    """Prints processor seconds of every part, wall seconds and the largest memory."""
    torch.set_num_threads(1)
    folder = os.environ.get("COTERIE_DATA")
    random, wall = np.random.default_rng(0), time.perf_counter()
    spent: dict[str, float] = {}

    def lap(name: str, began: float) -> None:
        spent[name] = spent.get(name, 0.0) + time.process_time() - began

    began = time.process_time()
    network = games.grow(games.load_network(Path(folder) if folder else None), devices, random)
    game = games.play_on(network, "strong", random)
    plan = form(game, singletons(devices), "sweep", restarts=0, search=False)
    lap("trust and clusters", began)
    began = time.process_time()
    market = _market(network, random)
    response = linear_response(market)
    lap("market", began)
    shown, classes, shares = work.images("mlp", devices)
    many = Cohort(shown, classes, shares, torch.full((devices,), work.EXAMPLES))
    module = work.model("mlp")
    model, kernel = parameters_of(module), kernel_for(module)
    charged, raw, paid = np.zeros(devices), np.zeros(devices, dtype=np.int64), np.zeros(devices)
    combine = fed.private_mean(plan.noise, plan.quality, CLIP, 0)
    hidden = plan.noise > 0.0
    for number in range(1, rounds + 1):
        began = time.process_time()
        model = model + combine(number, changes(module, model, many, Lesson(work.RATE, work.BATCH), number, kernel))
        lap("training and releases", began)
        began = time.process_time()
        price = exact_price(market, response, number).price
        paid += price * np.maximum(0.0, market.target(price))
        lap("prices", began)
        # Gaussian releases of multipliers z compose to one of (Σ 1/z²)^−½; what has no noise is counted as raw.
        charged[hidden] += plan.noise[hidden] ** -2.0
        raw[~hidden] += 1
    began = time.process_time()
    epsilon = {total: exact_epsilon(total**-0.5, DELTA) for total in np.unique(charged[hidden]).tolist()}
    lap("ledgers", began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{devices:,} devices, {network.ties.shape[0]:,} ties, {len(plan.clusters):,} clusters, {rounds} rounds")
    for name, seconds in spent.items():
        print(f"  {name}: {seconds:.1f} processor seconds")
    print(
        f"  largest ε {max(epsilon.values(), default=0.0):.1f}, raw releases {int(raw.sum()):,}, paid {paid.sum():,.0f}"
    )
    print(
        f"  {sum(spent.values()):.0f} processor seconds, {time.perf_counter() - wall:.0f} s (goal 600), "
        f"{memory:.2f} GB (goal 4)"
    )


def _market(network: games.Network, random: np.random.Generator) -> Market:
    both = np.concatenate((network.ties, network.ties[:, ::-1]))
    weights = sparse.csr_array(
        sparse.coo_array((random.uniform(0.1, 1.0, len(both)), (both[:, 0], both[:, 1])), shape=(network.size,) * 2)
    )
    return Market(
        leakage(weights, diagonal_hops=2, dense_limit=0, isolated="keep"),
        random.uniform(0.8, 1.2, network.size),
        random.uniform(0.02, 0.06, network.size),
        np.zeros(network.size),
        random.uniform(0.5, 1.5, network.size),
    )


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
