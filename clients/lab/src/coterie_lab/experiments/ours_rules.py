"""Our own experiments: nine attacks against the server's rules, beside byzfl's, and sybils against rules by trust."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie_lab.byzfl_rules import has_byzfl
from coterie_lab.claims import AtLeast, AtMost, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading

NOWHERE = float("nan")
RULES = ("mean", "median", "trimmed-mean", "geometric-median", "multi-krum", "centred-clipping", "nnm+geometric-median")
MORE_RULES = ("krum", "mean-around-median", "nnm+median", "nnm+trimmed-mean", "nnm+multi-krum")
BYZFL_RULES = ("byzfl geometric-median", "byzfl nnm+geometric-median", "byzfl caf", "byzfl monna")
"""Rules of byzfl that differ from ours: approximations, and rules that only byzfl has. MDA and SMEA are left out: they
try every choice of n − f updates."""
QUICK_LIES = ("sign flip", "a little is enough", "mimic", "label flip", "Gaussian", "scaled")
LIES = (*QUICK_LIES, "inner product", "zero", "random")
SYBIL_LIES = ("sign flip", "inner product", "a little is enough", "Gaussian", "scaled")
SYBIL_RULES = ("mean", "median", "trust+mean", "trust+trimmed-mean", "trust+centred-clipping")


def resisted(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy of one rule under every attack, and the most points lost against the mean of honest devices."""
    from dataclasses import replace

    from coterie_lab.crowd import digits, fashion
    from coterie_lab.lies import NO_ATTACK
    from coterie_lab.rules import DEVICES, run

    rule, share, lies = str(cell["rule"]), float(cell["liars"]), LIES[: int(cell["attacks"])]
    setting = replace(fashion(data) if cell["data"] == "Fashion-MNIST" else digits(), rounds=int(cell["rounds"]))
    clean = run(setting, "mean", NO_ATTACK, 0, seed)
    scores = [run(setting, rule, lie, round(share * DEVICES), seed) for lie in lies]
    suffix = "" if share == 0.2 else f", {share:.0%} lie".replace("%", " %")
    return [
        *(Reading(f"accuracy{suffix}", rule, float(place), score) for place, score in enumerate(scores)),
        Reading(f"points lost at worst{suffix}", rule, NOWHERE, 100.0 * (clean - min(scores))),
    ]


def outnumbered(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """Accuracy of one rule where 60 of 100 devices are sybils, and its worst share of the clean accuracy."""
    from coterie_lab.crowd import digits
    from coterie_lab.lies import NO_ATTACK
    from coterie_lab.rules import run, run_with_sybils

    rule, setting = str(cell["rule"]), digits()
    clean = run(setting, "mean", NO_ATTACK, 0, seed)
    scores = [run_with_sybils(setting, rule, lie, seed) for lie in SYBIL_LIES]
    return [
        *(Reading("accuracy", rule, float(place), score) for place, score in enumerate(scores)),
        Reading("worst share of clean", rule, NOWHERE, float(np.min(scores)) / clean),
    ]


def _effort(data: str, rules: tuple[str, ...], shares: tuple[float, ...], rounds: int, seeds: int) -> Effort:
    """All attacks in a full run; the first six where only a fifth of the devices lie."""
    attacks = len(QUICK_LIES) if len(shares) == 1 else len(LIES)
    cells: tuple[Cell, ...] = tuple(
        {"data": data, "rule": rule, "liars": share, "rounds": rounds, "attacks": attacks}
        for share in shares
        for rule in rules
    )
    return Effort(cells, seeds, 0.06 * rounds)


ALL_RULES = (*RULES, *MORE_RULES, *(BYZFL_RULES if has_byzfl() else ()))
SHARES = (0.2, 0.1, 0.3, 0.4)


def _rules(name: str, data_set: str, rounds: int, needs: tuple[str, ...] = ()) -> Experiment:
    return Experiment(
        name=name,
        paper="ours",
        title=f"Lies against rules, {data_set}",
        shows="attacks × rules",
        setting=f"20 devices, {data_set} dealt unevenly (Dirichlet 0.5). A share of the devices lie, all in the same "
        "way and knowing the honest updates: a fifth unless a figure says otherwise. Rules are the server's own; "
        "`byzfl` rows are that package's approximations with its own parameters, and rules that only it has. Accuracy "
        "is the mean over the last 5 rounds; 0 is a training that diverged. The radius of centred clipping, 0.4, was "
        "chosen on seeds 11, 12 and 13. Lies: " + ", ".join(LIES) + "; quick runs take the first six.",
        trial=resisted,
        quick=_effort(data_set, RULES, (0.2,), rounds // 2, 10 if not needs else 3),
        full=_effort(data_set, ALL_RULES, SHARES, rounds, 10),
        claims=(
            AtMost("the trimmed mean loses at most 6 points at worst", "points lost at worst", "trimmed-mean", 6.0),
            AtMost("… and so does centred clipping", "points lost at worst", "centred-clipping", 6.0),
            Ordered("the trimmed mean loses less than the mean", "points lost at worst", ("trimmed-mean", "mean")),
            Ordered(
                "neighbour mixing loses less than the geometric median alone",
                "points lost at worst",
                ("nnm+geometric-median", "geometric-median"),
            ),
            AtMost(
                "centred clipping loses at most 3 points where a tenth lie",
                "points lost at worst, 10 % lie",
                "centred-clipping",
                3.0,
            ),
            *(
                Ordered(f"centred clipping loses no more than byzfl's CAF{suffix}", f"points lost at worst{suffix}",
                        ("centred-clipping", "byzfl caf"))
                for suffix in (", 10 % lie", "")
            ),
        ),
        plots=tuple(
            plot
            for suffix in ("", *(f", {share:.0%} lie".replace("%", " %") for share in SHARES[1:]))
            for plot in (
                Plot(f"accuracy{suffix}", "", "test accuracy", groups=LIES),
                Plot(f"points lost at worst{suffix}", "", "points of accuracy lost at worst"),
            )
        ),
        needs=needs,
        reading="At 30 and 40 % on data this uneven no rule without trust can promise anything.",
    )  # fmt: skip


SYBIL_CELLS: tuple[Cell, ...] = tuple({"rule": rule} for rule in SYBIL_RULES)
EXPERIMENTS = (
    _rules("ours-rules", "digits", 120),
    _rules("ours-rules-fashion", "Fashion-MNIST", 100, ("Fashion-MNIST",)),
    Experiment(
        name="ours-rules-sybils",
        paper="ours",
        title="Sybils against rules by trust",
        shows="60 % sybils",
        setting="40 honest devices and 60 sybils who trust each other fully; 2 % of all ties cross, 3 devices are "
        "known to the publisher. Digits dealt unevenly (Dirichlet 0.5), 120 rounds. Lies: " + ", ".join(SYBIL_LIES)
        + ".",
        trial=outnumbered,
        quick=Effort(SYBIL_CELLS, 3, 20.0),
        full=Effort(SYBIL_CELLS, 10, 20.0),
        claims=tuple(
            AtLeast(f"{rule} keeps 80 % of the clean accuracy", "worst share of clean", rule, 0.8)
            for rule in SYBIL_RULES
            if rule.startswith("trust")
        ),
        plots=(
            Plot("accuracy", "", "test accuracy", groups=SYBIL_LIES),
            Plot("worst share of clean", "", "share of the clean accuracy at worst"),
        ),
    ),
)  # fmt: skip
