"""The result page and picture of social clusters over real agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coterie_cli.demos.clusters import CAST, NOISE_MAX
from coterie_lab.cluster_agents import CONCENTRATION, DELTA, METHODS, MNIST_SAMPLES, Outcome, Results

HEADER = """| data | method | accuracy (range) | noised: largest ε | raw to head | raw to platform | payoff (solo) |
|---|---|---|---|---|---|---|"""
NOTES = f"""ε is what the devices' own ledgers say at the end, at δ = {DELTA:g}, device level, all rounds composed; it
counts noised releases only, no ε describes a raw one. "Raw to head" counts the ledgers' raw releases: members' to a
head they trust at 0.7 or more, and heads' own updates inside their sum. Plain FedAvg hands every update to the platform
as it is, which no ledger limits: those are the updates the platform accepted.

Data, order of training and, on these simulated devices, noise are seeded: repeated, seed 0 gave every accuracy again.
Device ids and the clock are not, which moves ε in the third decimal.
Accuracy is measured on held-out images (359 digits, 1,000 of MNIST)."""
READING = """Reading. Clusters lie between the two. Nine of the twelve are among friends and one heads an
acquaintance, so that two noised updates enter each round's model against twelve. On the digits (650 parameters) this
costs {digits_clusters:.1f} points of accuracy, uniform noise {digits_uniform:.1f}. MNIST has 7,850 parameters, hence
3.5 times the norm of noise at the same clip: {mnist_clusters:.1f} points against {mnist_uniform:.1f}, too much for
either to be of use in ten rounds.

The price is in the other columns. The devices among friends have no ε at all: their protection is the head's
discretion and the sum. The stranger's ε equals that of uniform noise. The acquaintance that trusts its head 0.4 is the
most exposed of those with a guarantee: the paper gives it ε = 28.6 *in each round* at δ = 1e-6 and, as good rounds
raise trust, more (σ falls from 0.236 to 0.214), and ten rounds compose to an ε that promises next to nothing.
Nor is uniform noise of 0.6 a strong promise. The per-round budgets of [SCFL] should not be read as privacy over a
task; the ledger's figure should."""


def write_report(out: Path, results: Results, seeds: Sequence[int], rounds: int) -> str:
    """Writes clusters-agents.md and clusters-agents.png into `out`; the page."""
    out.mkdir(parents=True, exist_ok=True)
    listed = ", ".join(map(str, seeds))
    text = "\n\n".join(
        [
            "# Social clusters over real agents",
            "Made by `python -m coterie_lab.cluster_agents --data DIR`: five service processes and "
            f"{len(CAST)} agents per run, the cast of `coterie demo clusters` (circles of 4, 3 and 2 friends, two "
            f"acquaintances, a stranger), {rounds} rounds, seeds {listed}. Softmax regression from 0, 5 local epochs "
            "(digits: batches of 16 at rate 0.2; MNIST: 32 at 0.01), "
            f"noise σ_max = {NOISE_MAX} at clip norm 2, data dealt by Dirichlet({CONCENTRATION:g}): 1,438 digits of "
            f"8×8, {MNIST_SAMPLES:,} images of MNIST. All three methods have the same devices, data and friendships.",
            "\n".join([HEADER, *(_row(data, method, results[data][method]) for data in results for method in METHODS)]),
            f"![Accuracy by round](clusters-agents.png)\n\n{NOTES}",
            *([READING.format(**_costs(results))] if "MNIST" in results else []),
            _plans(results),
        ]
    )
    (out / "clusters-agents.md").write_text(text + "\n", encoding="utf-8")
    _plot(results, out / "clusters-agents.png")
    return text


def _row(data: str, method: str, outcomes: list[Outcome]) -> str:
    final = [100 * outcome.curve[-1] for outcome in outcomes]
    noised, raw = max(item.noised for item in outcomes), max(sum(item.raw) for item in outcomes)
    epsilon = max(max(item.epsilons) for item in outcomes)
    bare = max(item.delivered for item in outcomes) if METHODS[method].get("preset") == "fedavg" else 0
    payoff = np.mean([item.payoff for item in outcomes])
    alone = np.mean([item.alone for item in outcomes])
    cells = [
        data,
        method,
        f"{np.mean(final):.1f} % ({min(final):.1f}–{max(final):.1f})",
        f"{noised} of {len(CAST)}: {epsilon:.1f}" if noised else "none",
        str(raw),
        str(bare),
        "—" if np.isnan(payoff) else f"{payoff:.2f} ({alone:.2f})",
    ]
    return f"| {' | '.join(cells)} |"


def _costs(results: Results) -> dict[str, float]:
    """Points of accuracy that clusters and uniform noise cost against plain averaging, by data set and method."""
    mean = {
        (data.lower(), method.split()[0].rstrip(",").lower()): 100 * float(np.mean([run.curve[-1] for run in runs]))
        for data, methods in results.items()
        for method, runs in methods.items()
    }
    return {f"{data}_{method}": mean[data, "fedavg"] - value for (data, method), value in mean.items()}


def _plans(results: Results) -> str:
    """What the plans had in common, from the runs themselves."""
    planned = [method for methods in results.values() for method in methods["clusters"]]
    sizes = sorted({item.clusters for item in planned})
    stable = sum(item.stable is True for item in planned)
    seconds = [run.seconds for methods in results.values() for runs in methods.values() for run in runs]
    return (
        f"Clusters of {' or '.join(', '.join(map(str, size)) for size in sizes)} devices; the checker calls "
        f"{stable} of {len(planned)} last plans stable. A run took {min(seconds):.0f} to {max(seconds):.0f} s, "
        "starting the platform included."
    )


def _plot(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(results), figsize=(5.5 * len(results), 4.2), layout="constrained", squeeze=False, sharey=True
    )
    for panel, (data, methods) in zip(panels[0], results.items(), strict=True):
        for method in METHODS:
            curves = 100 * np.array([outcome.curve for outcome in methods[method]])
            rounds = np.arange(curves.shape[1])
            (line,) = panel.plot(rounds, curves.mean(axis=0), label=_legend(method, methods[method]))
            panel.fill_between(rounds, curves.min(axis=0), curves.max(axis=0), color=line.get_color(), alpha=0.2)
        panel.set(title=data, xlabel="rounds", ylim=(0, 100))
        panel.legend(loc="lower right", fontsize=8)
        panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("accuracy on held-out images, %")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _legend(method: str, outcomes: list[Outcome]) -> str:
    if METHODS[method].get("preset") == "fedavg":
        return f"{method}: all raw to the platform"
    noised, epsilon = outcomes[0].noised, max(max(outcome.epsilons) for outcome in outcomes)
    rest = "" if noised == len(CAST) else f", {len(CAST) - noised} raw to a head"
    return f"{method}: {noised} devices at ε ≤ {epsilon:.0f}{rest}"
