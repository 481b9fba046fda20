"""Processor seconds and peak memory of the market at 1,000, 10,000 and 100,000 devices with ten ties each.

    OMP_NUM_THREADS=1 python bench/market_scale.py [devices ...] [--hubs EXPONENT]

Seconds are processor seconds of one thread: on an idle core the clock shows the same, on a busy one it shows more.
Every size runs in its own process, so that peak memory is its own. Targets at 100,000 devices (1,000,000 ties):
everything but the exact diagonal under 2 s together, the diagonal under 10 s on random graphs, under 1 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy import sparse

from services.pricing.domain.budgets import Market
from services.pricing.domain.followers import equilibrium, linear_response
from services.pricing.domain.influence import leakage, normalise, return_diagonal
from services.pricing.domain.leaders import exact_price
from services.pricing.domain.welfare import optimum

T = TypeVar("T")
TIES = 10


def draw(devices: int, exponent: float, generator: np.random.Generator) -> sparse.csr_array:
    """Ten influences per device; influencers uniform, or popular as rank^−exponent."""
    rows = np.repeat(np.arange(devices), TIES)
    if exponent:
        popularity = np.arange(1, devices + 1.0) ** -exponent
        columns = generator.choice(devices, rows.size, p=popularity / popularity.sum())
    else:
        columns = generator.integers(0, devices, rows.size)
    columns = np.where(columns == rows, (columns + 1) % devices, columns)
    weights = generator.uniform(0.1, 1.0, rows.size)
    return sparse.csr_array(sparse.coo_array((weights, (rows, columns)), shape=(devices, devices)))


def timed(seconds: dict[str, float], name: str, call: Callable[[], T]) -> T:
    """Run and note the processor time."""
    start = time.process_time()
    result = call()
    seconds[name] = time.process_time() - start
    return result


def measure(devices: int, exponent: float) -> dict[str, float]:
    """All steps once; the compiled diagonal is warmed up on a small graph first."""
    generator = np.random.default_rng(0)
    small = normalise(draw(50, 0.0, generator))
    return_diagonal(small, sparse.csr_array(small.T), 5, 0.5)
    weights = draw(devices, exponent, generator)
    a, b = generator.uniform(0.8, 1.2, devices), generator.uniform(0.02, 0.06, devices)
    eps = generator.uniform(0.5, 1.5, devices)
    seconds: dict[str, float] = {}
    forward = timed(seconds, "normalise", lambda: normalise(weights))
    whole = timed(seconds, "whole operator", lambda: leakage(weights, dense_limit=0))
    timed(seconds, "diagonal", lambda: return_diagonal(forward, whole.backward, 5, 0.5))
    del seconds["whole operator"]
    market = Market(whole, a, b, np.zeros(devices), eps)
    timed(seconds, "one Σx", lambda: whole.apply(a))
    response = timed(seconds, "g and h", lambda: linear_response(market))
    quotes = timed(seconds, "30 exact prices", lambda: [exact_price(market, response, t) for t in range(1, 31)])
    answer = timed(seconds, "one equilibrium", lambda: equilibrium(market, quotes[9].price))
    best = timed(seconds, "welfare optimum", lambda: optimum(market, quotes[9].price))
    assert answer.converged
    seconds["all but the diagonal"] = sum(value for name, value in seconds.items() if name != "diagonal")
    tight = Market(whole, a, b * 8.0, np.zeros(devices), eps)
    edge = timed(seconds, "welfare optimum, some at 0", lambda: optimum(tight, float(np.quantile(b * 8.0, 0.9))))
    assert best.interior or exponent > 0
    assert not edge.interior
    seconds["residual"] = answer.residual
    seconds["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds


def main() -> None:
    """Print one Markdown table, one column per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("devices", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    parser.add_argument("--hubs", type=float, default=0.0, help="exponent of the influencers' popularity")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.devices[0], given.hubs)))
        return
    columns = []
    for devices in given.devices:
        command = [sys.executable, __file__, str(devices), "--one", "--hubs", str(given.hubs)]
        columns.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print("| seconds | " + " | ".join(f"{n:,} devices" for n in given.devices) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(f"{column[name]:.3g}" for column in columns) + " |")


if __name__ == "__main__":
    main()
