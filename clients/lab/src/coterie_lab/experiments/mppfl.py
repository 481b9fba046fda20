"""[MPPFL] Multi-Hop Privacy Propagation: server cost, welfare, convergence, price of anarchy. Figures 2 to 12.

Prices and budgets are the pricing service's own; `coterie_lab.market` draws the networks.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast, get_args

import numpy as np

from coterie_lab.claims import AtLeast, AtMost, Monotone, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.market import ROUNDS, Settings, claims, convergence, draw_market, mean
from coterie_lab.market_baselines import Protocol, compare
from coterie_lab.readings import Reading
from services.pricing.domain.game import play

NOWHERE = float("nan")
RIVALS = ("agnostic", "random", "fixed", "proxy")


def by_size(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 3, 4, 7, 8, 11, 12: every mechanism's mean cost and welfare on one random network."""
    size, protocol = int(cell["devices"]), _protocol(cell)
    market = draw_market(size, np.random.default_rng([seed, size]))
    runs = compare(market, ROUNDS, protocol, np.random.default_rng(seed))
    figures = {name: mean(series) for name, series in runs.items()}
    return [
        reading
        for name, (cost, welfare) in figures.items()
        for reading in (Reading("cost", name, float(size), cost), Reading("welfare", name, float(size), welfare))
    ]


def by_risk(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 5 and 9: the market over the risk weight α."""
    alphas = (0.01, 0.03, 0.05, 0.07, 0.1)
    return [reading for alpha in alphas for reading in _swept(alpha, Settings(risk_weight=alpha), seed)]


def by_hops(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figures 6 and 10: the market over the hops K."""
    return [reading for hops in range(1, 7) for reading in _swept(float(hops), Settings(hops=hops), seed)]


def _swept(x: float, settings: Settings, seed: int) -> list[Reading]:
    market = draw_market(20, np.random.default_rng(seed), settings)
    cost, welfare = mean(compare(market, ROUNDS, "common", np.random.default_rng(seed))["market"])
    return [Reading("cost", "market", x, cost), Reading("welfare", "market", x, welfare)]


def converged(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Figure 2: the error of Algorithm 1 by step, in both readings of the text."""
    market = draw_market(20, np.random.default_rng(seed))
    result = []
    for name, fresh in (("price from the new risk", True), ("price from the old risk", False)):
        errors = convergence(market, 1, fresh=fresh)
        result += [Reading("error", name, float(k), max(error, 1e-16)) for k, error in enumerate(errors, 1)]
        steps = next((k for k, error in enumerate(errors, 1) if error <= 1e-3), len(errors) + 1)
        result.append(Reading("steps to 1e-3", name, NOWHERE, float(steps)))
    return result


def anarchy(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Theorem 8: max Wf / Wf(equilibrium) at t = 10 over α."""
    result = []
    for alpha in (0.01, 0.02, 0.05, 0.1):
        market = draw_market(20, np.random.default_rng(seed), Settings(risk_weight=alpha))
        result.append(Reading("price of anarchy", "market", alpha, play(market, "mean-field", 10).price_of_anarchy))
    return result


def claimed(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """In which share of markets, whose scales span four decades, each claim about social-agnostic devices holds."""
    shares = claims(MARKETS, np.random.default_rng([seed, MARKETS]))
    return [Reading("share of markets", name, NOWHERE, share) for name, share in shares.items()]


MARKETS = 10


def _protocol(cell: Cell) -> Protocol:
    name = cell["protocol"]
    if name not in get_args(Protocol):
        raise ValueError(f"there is no protocol {name}")
    return cast(Protocol, name)


SETTING = (
    "Directed networks, edge probability U(0.1, 0.9), weights U(0.1, 1); a ~ U(0.8, 1.2), b ~ U(0.02, 0.06), "
    "ε ~ U(0.5, 1.5), K = 5, λ = 0.5, α = 0.05, τ = 0.5, 30 rounds, drawn for every seed."
)
SIZES = (20, 50, 80)
CONSTANT: tuple[Cell, ...] = tuple({"devices": n, "protocol": "constant"} for n in SIZES)
OWN: tuple[Cell, ...] = tuple({"devices": n, "protocol": "own"} for n in SIZES)


def _cheapest(says: str, others: tuple[str, ...]) -> tuple[Ordered, ...]:
    return tuple(Ordered(says.format(other), "cost", ("market", other)) for other in others)


def _richest(says: str, others: tuple[str, ...]) -> tuple[Ordered, ...]:
    return tuple(Ordered(says.format(other), "welfare", (other, "market")) for other in others)


EXPERIMENTS = (
    Experiment(
        name="mppfl-sizes",
        paper="mppfl",
        title="Server cost and welfare by number of devices, baselines at the mean price",
        shows="Figures 3, 4, 7, 8, 11, 12",
        setting=SETTING,
        trial=by_size,
        quick=Effort(CONSTANT, 5, 0.3),
        full=Effort(CONSTANT, 20, 0.3),
        claims=(
            *_cheapest("the market costs the server less than {} for every N", RIVALS),
            *_richest("the market's welfare is above that of {} for every N", RIVALS),
            Monotone("cost rises with the number of devices", "cost", ("market",), "rises"),
        ),
        plots=(Plot("cost", "devices", "server cost"), Plot("welfare", "devices", "social welfare")),
        deviations=(
            "SARDA is not defined by the texts: a one-hop proxy stands in its place.",
            "Baselines are paid the market's mean price; with separate prices see `mppfl-own-prices`.",
        ),
    ),
    Experiment(
        name="mppfl-own-prices",
        paper="mppfl",
        title="The same where every platform sets its own best price",
        shows="Figures 3, 4, 7, 8 by another protocol",
        setting=SETTING,
        trial=by_size,
        quick=Effort(OWN, 5, 0.3),
        full=Effort(OWN, 20, 0.3),
        claims=(
            *_cheapest("the market costs the server less than {} for every N", ("agnostic",)),
            *_richest("the market's welfare is above that of {} for every N", ("agnostic",)),
        ),
        plots=(Plot("cost", "devices", "server cost"), Plot("welfare", "devices", "social welfare")),
    ),
    *(
        Experiment(
            name=f"mppfl-{name}",
            paper="mppfl",
            title=f"Server cost and welfare by {title}",
            shows=shows,
            setting=f"{SETTING} N = 20.",
            trial=trial,
            quick=Effort(({},), 5, 1.0),
            full=Effort(({},), 20, 1.0),
            claims=(
                Monotone(f"cost rises with {symbol}", "cost", ("market",), "rises"),
                Monotone(f"welfare falls with {symbol}", "welfare", ("market",), "falls"),
            ),
            plots=(
                Plot("cost", f"{title} {symbol}", "server cost"),
                Plot("welfare", f"{title} {symbol}", "social welfare"),
            ),
        )
        for name, title, symbol, shows, trial in (
            ("risk", "risk weight", "α", "Figures 5 and 9", by_risk),
            ("hops", "hops", "K", "Figures 6 and 10", by_hops),
        )
    ),
    Experiment(
        name="mppfl-convergence",
        paper="mppfl",
        title="Algorithm 1's error by step",
        shows="Figure 2",
        setting=f"{SETTING} N = 20, t = 1.",
        trial=converged,
        quick=Effort(({},), 5, 1.0),
        full=Effort(({},), 50, 1.0),
        claims=(
            AtMost("within 15 steps, price from the new risk", "steps to 1e-3", "price from the new risk", 15.0),
            AtMost("within 15 steps, price from the old risk", "steps to 1e-3", "price from the old risk", 15.0),
        ),
        plots=(Plot("error", "step", "largest change of risk / N", log_y=True),),
    ),
    Experiment(
        name="mppfl-anarchy",
        paper="mppfl",
        title="Price of anarchy",
        shows="Theorem 8",
        setting=f"{SETTING} N = 20, t = 10.",
        trial=anarchy,
        quick=Effort(({},), 5, 2.0),
        full=Effort(({},), 20, 2.0),
        claims=(
            AtMost("the price of anarchy is 1 (within 1e-4) at α = 0.05", "price of anarchy", "market", 1.0001, 0.05),
            Monotone("it grows with α (our reading)", "price of anarchy", ("market",), "rises"),
        ),
        plots=(Plot("price of anarchy", "risk weight α", "max Wf / Wf(equilibrium)"),),
        reading="Each device reacts to the risk it receives and none to the risk it causes, so the equilibrium stays "
        "below the optimum however exactly the mean field is solved.",
    ),
    Experiment(
        name="mppfl-markets",
        paper="mppfl",
        title="Social-agnostic devices on random markets",
        shows="the orderings of Figures 3, 4, 7 and 8 far from their setting",
        setting="Markets of 5 to 39 devices; α, λ and τ uniform, b and ε over four decades; ten markets a seed, "
        "under the "
        "three protocols: baselines at their own price, at the market's, or at its mean.",
        trial=claimed,
        quick=Effort(({},), 10, 1.0),
        full=Effort(({},), 30, 1.0),
        claims=tuple(
            AtLeast(f"{what} in every market, {words}", "share of markets", f"{protocol}: agnostic {word}", 1.0)
            for protocol, words in (
                ("constant", "at the mean price"),
                ("common", "at the market's price"),
                ("own", "at its own price"),
            )
            for word, what in (("dearer", "social-agnostic costs more"), ("poorer", "… has less welfare"))
        ),
        plots=(Plot("share of markets", "", "share of random markets"),),
        reading="With its own best price the social-agnostic platform pays less than the market, because devices that "
        "know their risk must be paid more; the paper's ordering of costs comes from a price that adapts to the round.",
    ),
)
