"""What attackers get out of updates, sums and noise, and what audits prove of every claimed ε. Our own experiments.

`lab run ours-inversion ours-label ours-membership ours-audit` runs them all again. See `coterie_lab.attacks` and
`coterie_lab.audit`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie_lab.claims import AtLeast, AtMost, Claim, Ordered
from coterie_lab.experiment import Cell, Effort, Experiment, Plot
from coterie_lab.readings import Reading

NOWHERE = float("nan")
TARGETS = ("raw", "sum of 2", "sum of 4", "sum of 12", "noised", "secure sum of 12", "guess")
MECHANISMS = (
    "gaussian", "laplace", "survey", "adaptive clip", "star", "clusters", "star that diverges", "mesh", "market",
    "secure sum", "secure sum with count", "ledger",
)  # fmt: skip


def attacked(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """One attack on one target: its mean success over victims."""
    from coterie_lab.attacks import ATTACKS
    from coterie_lab.images import DIGITS, image_set

    attack, target = str(cell["attack"]), str(cell["target"])
    images = image_set(DIGITS, None, 1_438, 359)
    result = [ATTACKS[attack](images, target, 1_000 * seed + number) for number in range(int(cell["victims"]))]
    return [Reading("success", target, NOWHERE, float(np.mean(result)))]


def audited(cell: Cell, seed: int, data: Path | None) -> list[Reading]:
    """ε that a mechanism's releases prove it to have at least, beside what its charges claim."""
    from coterie_lab.audit import audit
    from coterie_lab.canaries import MECHANISMS as KNOWN

    name = str(cell["mechanism"])
    finding = audit(name, KNOWN[name], int(cell["runs"]), seed)
    return [
        Reading("ε", name, 0.0, finding.claimed),
        Reading("ε", name, 1.0, finding.shown),
        Reading("room", name, NOWHERE, min(finding.claimed, 1e9) - finding.shown),
    ]


def _effort(attack: str, victims: int, seeds: int, seconds: float) -> Effort:
    cells: tuple[Cell, ...] = tuple({"attack": attack, "target": item, "victims": victims} for item in TARGETS)
    return Effort(cells, seeds, seconds * victims)


def _attack(
    name: str, title: str, setting: str, measure: str, victims: int, seconds: float, claims: tuple[Claim, ...]
) -> Experiment:
    return Experiment(
        name=f"ours-{name}",
        paper="ours",
        title=title,
        shows="attacks as evidence",
        setting=f"{setting} The 8×8 digits, one hidden layer of 32, one step on all of a device's images, clip "
        "norm 0.5; "
        "noised: multiplier 1 on the update itself; secure sum: the same noise shared out over its twelve devices. "
        "`guess` sees nothing of the update.",
        trial=attacked,
        quick=_effort(name, victims, 5, seconds),
        full=_effort(name, 10 * victims, 10, seconds),
        claims=claims,
        plots=(Plot("success", "", measure),),
    )


EXPERIMENTS = (
    _attack(
        "inversion",
        "Gradient inversion",
        setting="Devices with one image each. Likeness is the correlation of the best guess with any image in the sum.",
        measure="likeness of the best guess",
        victims=8,
        seconds=0.2,
        claims=(
            AtLeast("a raw update gives its image away (likeness ≥ 0.95)", "success", "raw", 0.95),
            AtLeast("… and so does a sum of two without noise", "success", "sum of 2", 0.95),
            Ordered("a sum of twelve hides more than one of two", "success", ("sum of 12", "sum of 2")),
            AtMost("noise leaves nothing to see (likeness ≤ 0.5)", "success", "noised", 0.5),
            AtMost("… nor does a secure sum of twelve", "success", "secure sum of 12", 0.5),
        ),
    ),
    _attack(
        "label",
        "Label inference",
        setting="Devices with one image each. The class whose last bias rises most is named as the victim's.",
        measure="share of victims whose class is named",
        victims=40,
        seconds=0.01,
        claims=(
            AtLeast("a raw update gives its class away", "success", "raw", 0.99),
            Ordered(
                "sums of 12 and 4 tell less than one of 2, and that less than the update",
                "success",
                ("sum of 4", "sum of 2", "raw"),
            ),
            AtMost("noise leaves a guess (under 0.3)", "success", "noised", 0.3),
            AtMost("… and so does a secure sum of twelve", "success", "secure sum of 12", 0.3),
        ),
    ),
    _attack(
        "membership",
        "Membership inference",
        setting=(
            "Devices with eight images each. Examples are ranked by how far the update points along their own slope."
        ),
        measure="area under the curve (0.5 is a guess)",
        victims=20,
        seconds=0.02,
        claims=(
            AtLeast("a raw update tells who was in it (area ≥ 0.8)", "success", "raw", 0.8),
            Ordered("larger sums tell less", "success", ("sum of 12", "sum of 4", "sum of 2", "raw")),
            AtMost("noise leaves a guess (area ≤ 0.6)", "success", "noised", 0.6),
            AtMost("… and so does a secure sum of twelve", "success", "secure sum of 12", 0.6),
        ),
    ),
    Experiment(
        name="ours-audit",
        paper="ours",
        title="Empirical lower bounds on ε beside every claim",
        shows="attacks as evidence",
        setting="A canary is released many times in two worlds; what tells them apart bounds ε from below, with "
        "a chance of "
        "error of 1 in 10,000 (`coterie_lab.audit`). The claim is what the ledger composes of the charges made. A "
        "bound above its claim would prove it false; one below proves nothing.",
        trial=audited,
        quick=Effort(tuple({"mechanism": name, "runs": 4_000} for name in MECHANISMS), 3, 6.0),
        full=Effort(tuple({"mechanism": name, "runs": 20_000} for name in MECHANISMS), 3, 30.0),
        claims=tuple(AtLeast(f"{name}: ε is at least what was shown", "room", name, 0.0) for name in MECHANISMS),
        plots=(Plot("ε", "", "ε at the δ where both are nearest", groups=("claimed", "shown to be at least")),),
    ),
)
