"""Random markets as [MPPFL] draws them, and what its figures measure on them, by the pricing service's own code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from coterie_lab.market_baselines import Protocol, Series, compare
from services.pricing.domain.budgets import Market, external_risk
from services.pricing.domain.game import play
from services.pricing.domain.influence import Matrix, Vector, leakage
from services.pricing.domain.leaders import frozen_price

Table: TypeAlias = dict[int, dict[str, Vector]]
"""Number of devices → mechanism → (mean cost, mean welfare)."""

ROUNDS = 30
SEEDS = range(5)
NAMES = {
    "market": "market (MPPFL)",
    "exact": "exact leader",
    "agnostic": "social-agnostic",
    "random": "random",
    "fixed": "fixed (DP-FedAvg)",
    "proxy": "one-hop proxy (for SARDA)",
    "optimum": "optimum at r*",
}
# Reference means over t = 1..30 and five seeds (server cost, welfare); the seeds' own draws are not known, so they
# agree with ours only as closely as two samples of five networks do.
REFERENCE: dict[int, dict[str, tuple[float, float]]] = {
    20: {"market": (5.787, 1.717), "exact": (5.786, 1.665), "agnostic": (6.345, 1.490), "random": (8.947, 1.002),
         "fixed": (6.515, 1.514), "proxy": (6.622, 1.544), "optimum": (5.983, 1.736), "own": (5.611, 1.424)},
    50: {"market": (14.054, 4.145), "exact": (14.050, 4.016), "agnostic": (15.399, 3.589), "random": (22.008, 2.408),
         "fixed": (15.797, 3.655), "proxy": (16.067, 3.723), "optimum": (14.531, 4.190), "own": (13.617, 3.420)},
    80: {"market": (23.269, 6.880), "exact": (23.264, 6.666), "agnostic": (25.494, 5.959), "random": (36.626, 4.016),
         "fixed": (26.153, 6.059), "proxy": (26.601, 6.179), "optimum": (24.068, 6.954), "own": (22.544, 5.678)},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """How a random market is drawn; the defaults are those under which the paper's orderings are checked."""

    risk_weight: float = 0.05
    hops: int = 5
    discount: float = 0.5
    balance: float = 0.5
    linear: tuple[float, float] = (0.02, 0.06)
    weight: tuple[float, float] = (0.5, 1.5)


def draw_network(devices: int, generator: np.random.Generator) -> Matrix:
    """The paper's graph: edge i ← j with probability p_ij ~ U(0.1, 0.9), weight U(0.1, 1); no node is isolated."""
    chance = generator.uniform(0.1, 0.9, (devices, devices))
    edges = generator.uniform(size=(devices, devices)) < chance
    weights = np.where(edges, generator.uniform(0.1, 1.0, (devices, devices)), 0.0)
    np.fill_diagonal(weights, 0.0)
    alone = np.flatnonzero(~weights.any(axis=1))
    weights[alone, (alone + 1) % devices] = 0.5
    return weights


def draw_market(devices: int, generator: np.random.Generator, settings: Settings | None = None) -> Market:
    """A random market: the network above, a ~ U(0.8, 1.2), b and ε uniform in the settings' ranges."""
    settings = settings or Settings()
    weights = draw_network(devices, generator)
    quadratic = generator.uniform(0.8, 1.2, devices)
    return Market(
        leakage(weights, hops=settings.hops, discount=settings.discount),
        cost_quadratic=quadratic,
        cost_linear=generator.uniform(*settings.linear, devices),
        cost_fixed=np.zeros(devices),
        accuracy_weight=generator.uniform(*settings.weight, devices),
        risk_weight=settings.risk_weight,
        balance=settings.balance,
    )


def mean(series: Series) -> tuple[float, float]:
    """Mean server cost and welfare over the rounds."""
    return float(series.costs.mean()), float(series.welfare.mean())


def by_size(sizes: Iterable[int], protocol: Protocol, *, fixed_factor: float = 1.0) -> Table:
    """Mean (cost, welfare) of every mechanism for every number of devices, over the seeds."""
    result: Table = {}
    for n in sizes:
        runs = []
        for seed in SEEDS:
            market = draw_market(n, np.random.default_rng(seed))
            runs.append(compare(market, ROUNDS, protocol, np.random.default_rng(seed), fixed_factor=fixed_factor))
        result[n] = {name: np.mean([mean(run[name]) for run in runs], axis=0) for name in NAMES}
    return result


def sweep(settings: Iterable[Settings]) -> list[tuple[float, float]]:
    """Mean (cost, welfare) of the market for each setting, on one network (N = 20, seed 3)."""
    points = []
    for setting in settings:
        market = draw_market(20, np.random.default_rng(3), setting)
        points.append(mean(compare(market, ROUNDS, "common", np.random.default_rng(0))["market"]))
    return points


def anarchy(alphas: Iterable[float]) -> list[float]:
    """The mechanism's price of anarchy at t = 10 (N = 20, mean over seeds), which the paper says tends to 1."""
    values = []
    for alpha in alphas:
        markets = [draw_market(20, np.random.default_rng(seed), Settings(risk_weight=alpha)) for seed in SEEDS]
        values.append(float(np.mean([play(market, "mean-field", 10).price_of_anarchy for market in markets])))
    return values


def convergence(market: Market, round_number: int, *, fresh: bool, steps: int = 30) -> list[float]:
    """max|R' − R|/N per step of Algorithm 1, priced from the new risk (`fresh`) or from the old, its other reading."""
    risk = np.zeros(market.devices)
    price = frozen_price(market, risk, round_number).price
    errors = []
    for _ in range(steps):
        budgets = np.maximum(0.0, market.target(price) - market.risk_weight * risk)
        previous, risk = risk, external_risk(market, budgets)
        price = frozen_price(market, risk if fresh else previous, round_number).price
        errors.append(float(np.abs(risk - previous).max()) / market.devices)
    return errors


def claims(instances: int, generator: np.random.Generator) -> dict[str, float]:
    """In which share of random markets each claim about social-agnostic devices holds."""
    counts = dict.fromkeys(
        [f"{protocol}: agnostic {what}" for protocol in ("own", "common", "constant") for what in ("dearer", "poorer")]
        + ["common: proxy richer than market", "exact cheaper than mean-field"],
        0,
    )
    for _ in range(instances):
        b, eps = 10.0 ** generator.uniform(-3, 1), 10.0 ** generator.uniform(-2, 2)  # the scales span four decades
        setting = Settings(
            risk_weight=generator.uniform(0.01, 0.1),
            discount=generator.uniform(0.1, 0.9),
            balance=generator.uniform(0.1, 0.95),
            linear=(0.5 * b, 1.5 * b),
            weight=(0.5 * eps, 1.5 * eps),
        )
        market = draw_market(int(generator.integers(5, 40)), generator, setting)
        for protocol in ("own", "common", "constant"):
            runs = compare(market, ROUNDS, protocol, generator)
            (cost, worth), (blind_cost, blind_worth) = mean(runs["market"]), mean(runs["agnostic"])
            counts[f"{protocol}: agnostic dearer"] += blind_cost > cost
            counts[f"{protocol}: agnostic poorer"] += blind_worth < worth
            if protocol == "common":
                counts["common: proxy richer than market"] += mean(runs["proxy"])[1] > worth
                counts["exact cheaper than mean-field"] += mean(runs["exact"])[0] <= cost
    return {name: count / instances for name, count in counts.items()}
