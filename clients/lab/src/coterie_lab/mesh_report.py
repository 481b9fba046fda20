"""The result page and picture of the mesh experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coterie_lab.mesh import GRAPHS, LOOSE, MOST_ROUNDS, TARGETS, Course, Results, radio_network
from services.topology.domain.betta import evaluate_links, pseudo_training_time
from services.topology.domain.betta_fast import plan_mesh
from services.topology.domain.betta_network import MeshNetwork, MeshRules, Transfers
from services.topology.domain.betta_reference import plan_mesh_reference
from services.topology.domain.betta_rivals import baseline_plans
from services.topology.domain.mixing import hitting_times

TRUST = {"AB": 4, "AD": 4, "AE": 48, "AF": 4, "BC": 29, "BE": 42, "CD": 31, "DF": 4}
UNTRUST = {"AC": 34, "BD": 4, "BF": 8, "CE": 7, "CF": 37, "DE": 45, "EF": 51}
FIG_3B = ("AB", "AD", "AF", "BC", "CD", "CE", "DE", "DF")
LETTERS = "ABCDEF"
NAMES = ("BeTTa", "BeTTa capped", "DABMD-like", "social + MEP", "PDOO-like")
BASELINES = ("DABMD-like", "PDOO-like")
CLOCKS: tuple[Transfers, ...] = ("parallel", "shared")
TABLE_III = """| seconds | 65 % | 70 % | 75 % | 80 % |
|---|---|---|---|---|
| ODLF-PDP-16 | 822.3 | 953.9 | 1250.1 | 2138.1 |
| DAMBD-16 | 872.1 | 1065.9 | 1582.7 | 2971.6 |
| PDOO-16 | 2277.1 | 2752.2 | 3534.7 | 4893.7 |
| saved against DAMBD | 5.7 % | 10.5 % | 21.0 % | 28.0 % |
| ODLF-PDP-32 | 1469.3 | 1707.5 | 2223.7 | 3534.2 |
| DAMBD-32 | 1364.1 | 1694.8 | 2356.3 | 4547.2 |
| PDOO-32 | 2454.9 | 2746.1 | 3245.4 | 4493.7 |
| saved against DAMBD | −7.7 % | −0.7 % | 5.6 % | 22.3 % |"""


READING = """Reading. With `parallel` transfers one slow board on LoRa sets everybody's round time whatever the plan, so
only the number of rounds can differ, and with evenly spread data faster mixing saves few of them: the aim is not met.
With `shared` transfers a device pays for every neighbour; a plan that relieves the busiest devices has shorter rounds,
which is where the savings come from: most where the social graph has hubs, least where degrees are even (small world,
cliques). `social + MEP` shows how much of it is batch sizes alone. Plans and baselines in which everybody is noisy do
not arrive: at ε = 1 per round, provable Laplace noise on every one of the model's parameters drowns the step. Hence the
degree cap is the setting to use on graphs where the uncapped objective (13) prefers the complete graph."""


def write_report(out: Path, data: str, seeds: int, results: Results, loose: Results, instances: int) -> None:
    """Writes mesh.md and mesh.png into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    parts = [
        "# Meshes planned by BeTTa",
        "Made by `python -m coterie_lab.mesh --data DIR` ([BETTA] §IV; deviations: [paper page](../papers/betta.md)). "
        "Seconds are a simulated clock: the round time of the transfer model, not of this machine.",
        "## The worked example (Fig. 3)",
        worked_example(),
        f"## Pseudo training time, ε = 1, median of {instances} instances",
        pseudo_times(instances),
        "The uncapped objective often ends in the complete graph with everybody noisy: (10) does not charge for "
        "neighbours, so the complete graph is optimal in both H and δ.",
        f"## Physical time to accuracy: {data}, {seeds} seeds",
        "Mean over devices of each one's own accuracy; median seconds [least–most] over seeds, — where a seed did not "
        "arrive in 50 rounds; noisy: mean number of devices that add noise. Softmax regression, η = 0.01·0.99^t, ε = 1 "
        "per round with the provable clipped noise (per-sample ‖gradient‖₁ ≤ 20, taken at what was sent), 32 samples "
        "a basic batch, Wi-Fi below 100 m, LoRa beyond.",
        "![seconds to 80 %](mesh.png)",
        *(_accuracy_table(results, kind, count, clock) for kind, count, clock in _settings(results)),
        "## Savings against the better baseline",
        savings(results),
        READING,
        f"## Partial privacy: ε = {LOOSE:g}, 16 devices",
        partial_privacy(loose),
        "## The paper's Table III",
        TABLE_III,
    ]
    (out / "mesh.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    _draw(out / "mesh.png", data, results)


def worked_example() -> str:
    """Fig. 3's network: Table IV's hitting times, the winner, why each link is there, and every snapshot on its way."""
    network, rules = _fig_3(), MeshRules()
    plan, check = plan_mesh(network, rules), plan_mesh_reference(network, rules)
    same = plan.pairs == check.pairs and plan.dp_budget == check.dp_budget
    facts, drawn = plan.figures, evaluate_links(network, rules, _pairs(FIG_3B))
    times = hitting_times(drawn.figures.mixing)
    matrix = [f"| {LETTERS[i]} | " + " | ".join(f"{value:.1f}" for value in row) + " |" for i, row in enumerate(times)]
    rows = []
    for count, link in enumerate(plan.links, 1):
        weighed = (
            ""
            if count < network.devices - 1
            else _snapshot(network, rules, [(x.first, x.second) for x in plan.links[:count]])
        )
        name = f"{LETTERS[link.first]}{LETTERS[link.second]}"
        rows.append(f"| {name} | {link.step} | {link.score or 0:.4g} | {weighed} |")
    return "\n".join(
        [
            f"Hitting times in Fig. 3(b)'s topology (Table IV), rows from, columns to; H = "
            f"{drawn.figures.hitting_time:.2f}, L = {drawn.figures.local_iterate:g}, δ = "
            f"{drawn.figures.spectral_gap:.5f}, P = {drawn.figures.pseudo_training_time:.1f} at ε = 1:",
            "",
            f"| | {' | '.join(LETTERS)} |",
            "|---" * 7 + "|",
            *matrix,
            "",
            f"Winner n = {plan.dp_budget}, H = {facts.hitting_time:.3f}, L = {facts.local_iterate:g}, "
            f"P = {facts.pseudo_training_time:.2f}, batches {plan.batch_sizes.tolist()}; "
            f"fast and reference planner {'agree' if same else 'DISAGREE'}. Its links in the order they were added; "
            "every topology from the spanning tree on is a snapshot:",
            "",
            "| link | step | score (T for CAS) | snapshot: H, L, P |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _fig_3() -> MeshNetwork:
    seconds = np.full((6, 6), np.inf)
    for name, value in {**TRUST, **UNTRUST}.items():
        i, j = (LETTERS.index(letter) for letter in name)
        seconds[i, j] = seconds[j, i] = value
    return MeshNetwork.build(6, _pairs(tuple(TRUST)), seconds, [1, 2, 7, 2, 7, 1])


def _pairs(names: tuple[str, ...]) -> list[tuple[int, int]]:
    return [(LETTERS.index(name[0]), LETTERS.index(name[1])) for name in names]


def _snapshot(network: MeshNetwork, rules: MeshRules, links: Sequence[tuple[int, int]]) -> str:
    facts = evaluate_links(network, rules, links).figures
    return f"{facts.hitting_time:.2f}, {facts.local_iterate:g}, {facts.pseudo_training_time:.2f}"


def pseudo_times(instances: int) -> str:
    """§9's table: BeTTa's H, δ, φ, P and the P of every baseline."""
    lines = [
        "| V, social graph | H | δ | φ | P | P capped | social | social all DP | ring | expander | complete |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for count in (16, 32):
        for kind in GRAPHS:
            rows = np.array([_pseudo_row(radio_network(kind, count, seed), seed) for seed in range(instances)])
            middle = np.median(rows, axis=0)
            middle[2] = rows[:, 2].mean()
            cells = [f"{middle[0]:.0f}", f"{middle[1]:.3f}", f"{middle[2]:.2f}"] + [
                f"{value:.5g}" for value in middle[3:]
            ]
            lines.append(f"| {count} {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _pseudo_row(network: MeshNetwork, seed: int) -> list[float]:
    rules, count = MeshRules(), network.devices
    facts = plan_mesh(network, rules).figures
    capped = plan_mesh(network, MeshRules(max_degree=int(np.ceil(np.log2(count))) + 1)).figures
    plans = baseline_plans(network, rules, np.random.default_rng(seed))
    social = plans["social"].figures
    noisy = pseudo_training_time(social.hitting_time, social.local_iterate, social.spectral_gap, 1.0, rules.epsilon)
    others = [plans[name].figures.pseudo_training_time for name in ("ring", "expander", "complete")]
    return [
        *(facts.hitting_time, facts.spectral_gap, len(facts.dp_devices) / count, facts.pseudo_training_time),
        *(capped.pseudo_training_time, social.pseudo_training_time, noisy, *others),
    ]


def _settings(results: Results) -> list[tuple[str, int, Transfers]]:
    return list(dict.fromkeys((kind, count, clock) for kind, count, clock, _ in results))


def _accuracy_table(results: Results, kind: str, count: int, clock: Transfers) -> str:
    head = " | ".join(f"{target:.0%}" for target in TARGETS)
    title = f"**{kind}, {count} devices, {clock} transfers**"
    lines = [title, "", f"| seconds to | noisy | {head} |", "|---|---|---|---|---|---|"]
    for name in NAMES:
        runs = results[kind, count, clock, name]
        cells = " | ".join(_cell(runs, target) for target in TARGETS)
        lines.append(f"| {name} | {np.mean([run.noisy for run in runs]):g} | {cells} |")
    return "\n".join(lines)


def _cell(runs: list[Course], target: float) -> str:
    values = sorted(run.seconds[target] for run in runs if target in run.seconds)
    if len(values) < len(runs):
        return f"— ({len(values)} of {len(runs)} arrived)"
    return f"{np.median(values):.0f} [{values[0]:.0f}–{values[-1]:.0f}]"


def partial_privacy(results: Results) -> str:
    """Whether plans in which some devices are noisy reach the targets, and whether any is first."""
    tables = [_accuracy_table(results, kind, count, clock) for kind, count, clock in _settings(results)]
    courses = [
        (run, results[kind, count, clock, "DABMD-like"][seed])
        for (kind, count, clock, name), runs in results.items()
        if name.startswith("BeTTa")
        for seed, run in enumerate(runs)
        if 0 < run.noisy < count
    ]
    last = TARGETS[-1]
    arrived = sum(last in run.seconds for run, _ in courses)
    first = sum(run.seconds.get(last, np.inf) < rival.seconds.get(last, np.inf) for run, rival in courses)
    words = (
        f"{len(courses)} plans have some but not all devices noisy; {arrived} of them reach {last:.0%} within "
        f"{MOST_ROUNDS} rounds and {first} before the social graph without noise."
    )
    return "\n\n".join([*tables, words])


def saving(results: Results, kind: str, count: int, clock: Transfers, name: str, target: float) -> float:
    """Median over seeds of 1 − time/(better baseline's time), paired by seed; −∞ where the plan did not arrive."""
    shares = []
    for seed, run in enumerate(results[kind, count, clock, name]):
        rivals = [results[kind, count, clock, rival][seed].seconds.get(target, np.inf) for rival in BASELINES]
        shares.append(1.0 - run.seconds[target] / min(rivals) if target in run.seconds else -np.inf)
    return float(np.median(shares))


def savings(results: Results) -> str:
    """One row per setting and plan, and in words where the aim of 20 % at 75 and 80 % is met."""
    lines = ["| setting | plan | 65 % | 70 % | 75 % | 80 % | 20 % at 75 and 80 %? |", "|---|---|---|---|---|---|---|"]
    met: dict[str, list[bool]] = {clock: [] for clock in CLOCKS}
    for kind, count, clock in _settings(results):
        best = False
        for name in ("BeTTa", "BeTTa capped"):
            shares = [saving(results, kind, count, clock, name, target) for target in TARGETS]
            reached = shares[2] >= 0.2 and shares[3] >= 0.2
            best = best or reached
            cells = " | ".join("did not arrive" if np.isinf(share) else f"{share:+.1%}" for share in shares)
            lines.append(f"| {kind}, {count}, {clock} | {name} | {cells} | {'yes' if reached else 'no'} |")
        met[clock].append(best)
    words = [
        f"With `{clock}` transfers a BeTTa plan saves 20 % at both 75 and 80 % in {sum(wins)} of {len(wins)} settings."
        for clock, wins in met.items()
    ]
    return "\n".join(lines) + "\n\n" + " ".join(words)


def _draw(path: Path, data: str, results: Results) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    settings = _settings(results)
    figure, axes = plt.subplots(1, 2, figsize=(11, 1.2 + 0.4 * len(settings)), sharey=True)
    for axis, clock in zip(axes, CLOCKS, strict=True):
        rows = [(kind, count) for kind, count, other in settings if other == clock]
        for place, name in enumerate(NAMES[:4]):
            for row, (kind, count) in enumerate(rows):
                runs = results[kind, count, clock, name]
                values = [run.seconds[0.8] for run in runs if 0.8 in run.seconds]
                if not values:
                    continue
                height, middle = row + (place - 1.5) * 0.18, float(np.median(values))
                axis.barh(height, middle, 0.16, color=f"C{place}", label=name if row == 0 else None)
                axis.plot([min(values), max(values)], [height, height], color="black", linewidth=1)
        axis.set_title(f"{clock} transfers")
        axis.set_xlabel("simulated seconds to 80 % (bar: median, line: range)")
        axis.set_yticks(range(len(rows)), [f"{kind}, {count}" for kind, count in rows])
        axis.spines[["top", "right"]].set_visible(False)
    handles = [Patch(color=f"C{place}") for place in range(4)]
    figure.legend(handles, NAMES[:4], loc="upper center", ncols=4, frameon=False)
    figure.text(0.01, 0.01, f"{data}; no bar: not reached by any seed; PDOO-like is in the tables", fontsize=8)
    figure.tight_layout(rect=(0, 0.03, 1, 0.93))
    figure.savefig(path, dpi=120)
    plt.close(figure)
