"""Attacks against rules, on the server's own code: `python -m coterie_lab.rules [digits|fashion] [--full]`.

Writes `rules-digits.md` or `rules-fashion.md`: 20 devices learn with uneven data (Dirichlet 0.5) while f of them lie in
one of nine ways; every rule of the server combines the same kind of updates, and so does the byzfl package where it is
installed. Quick runs take six rules and up to 20 % of liars; `--full` takes all rules and up to 40 %. The page is
written anew after each share of liars. The four files of Fashion-MNIST are looked for in the data folder (`--data`,
COTERIE_DATA), or where Debian's package puts them.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coterie.samples import dirichlet_shares
from coterie.training import single_threaded
from coterie_lab.byzfl_rules import has_byzfl, theirs
from coterie_lab.market import table
from services.aggregation.domain.rules.axis import rule_for
from services.aggregation.domain.rules.combining import Combination
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.domain.rules.weighting import say

Matrix = NDArray[np.float64]
DEVICES = 20
FRACTIONS = (0.1, 0.2, 0.3, 0.4)
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
RULES = (
    "mean",
    "median",
    "trimmed-mean",
    "geometric-median",
    "krum",
    "multi-krum",
    "centred-clipping",
    "mean-around-median",
    "nnm+median",
    "nnm+trimmed-mean",
    "nnm+geometric-median",
    "nnm+multi-krum",
    "nnm+mean-around-median",
)
QUICK = ("mean", "trimmed-mean", "geometric-median", "centred-clipping", "nnm+trimmed-mean", "nnm+geometric-median")
BYZFL_RUNS = ("byzfl geometric-median", "byzfl nnm+geometric-median", "byzfl caf", "byzfl monna")
"""Rules of byzfl whose numbers are not ours: approximations, and what only byzfl has. Its MDA and SMEA try every choice
of n − f updates, too many for a table."""
LAST_ROUNDS = 5
"""Accuracy is the mean over so many last rounds."""
SAME = 1e-9
"""Results no further apart than this, relative to the largest number, are the same."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Data and how devices train on it: local steps of SGD on batches, for so many rounds."""

    name: str
    inputs: torch.Tensor
    labels: torch.Tensor
    test: tuple[torch.Tensor, torch.Tensor]
    hidden: int
    rounds: int
    radius: float
    steps: int = 5
    batch: int = 32
    rate: float = 0.1


def digits() -> Setting:
    """The 1,797 digits of scikit-learn, a fifth held out."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    inputs = torch.tensor(images[order] / 16.0, dtype=torch.float32)
    targets = torch.tensor(labels[order], dtype=torch.int64)
    held = len(labels) // 5
    return Setting("digits", inputs[held:], targets[held:], (inputs[:held], targets[:held]), 48, 120, 1.0, rate=0.3)


def fashion(folder: Path | None) -> Setting | None:
    """Fashion-MNIST, 12,000 training images of it; None where its files are not."""
    for place in (folder, DEBIAN):
        if place is not None and (place / "train-images-idx3-ubyte.gz").exists():
            train = _images(place, "train", 12_000)
            return Setting("Fashion-MNIST", *train, _images(place, "t10k", 4_000), 32, 60, 1.0)
    return None


def _images(folder: Path, part: str, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[:most]
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)[:most]
    return torch.tensor(pixels / 255.0, dtype=torch.float32), torch.tensor(labels.astype(np.int64))


class Crowd:
    """All devices at once: their models are one stack of matrices, so that a step is one product for all."""

    def __init__(self, setting: Setting, devices: int, seed: int) -> None:
        self.setting, self.devices = setting, devices
        rng = np.random.default_rng(seed)
        shares = dirichlet_shares(setting.labels.numpy(), devices, 0.5, rng)
        self._counts = torch.tensor([len(share) for share in shares])
        self._pool = torch.zeros((devices, int(self._counts.max())), dtype=torch.int64)
        for row, share in zip(self._pool, shares, strict=True):
            row[: len(share)] = torch.from_numpy(np.asarray(share))
        self._draw = torch.Generator().manual_seed(seed)
        width = setting.inputs.shape[1]
        self._shapes = [(width, setting.hidden), (setting.hidden,), (setting.hidden, 10), (10,)]
        start = torch.Generator().manual_seed(0)
        scaled = [torch.randn(shape, generator=start) * (2.0 / shape[0]) ** 0.5 for shape in self._shapes[::2]]
        first = [scaled[0], torch.zeros(setting.hidden), scaled[1], torch.zeros(10)]
        self.model = np.concatenate([each.numpy().ravel() for each in first]).astype(np.float64)

    def _split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Layers of a stack of flat models."""
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        pieces = torch.split(flat, sizes, dim=1)
        return [piece.reshape(-1, *shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def changes(self, flip: range) -> Matrix:
        """Every device's change after its local steps; those in `flip` train on labels turned round."""
        setting = self.setting
        flat = torch.tensor(self.model, dtype=torch.float32).repeat(self.devices, 1)
        for _ in range(setting.steps):
            drawn = torch.rand((self.devices, setting.batch), generator=self._draw) * self._counts[:, None]
            chosen = self._pool.gather(1, drawn.long())
            inputs, labels = setting.inputs[chosen], setting.labels[chosen]
            for device in flip:
                labels[device] = 9 - labels[device]
            flat.requires_grad_(True)
            w1, b1, w2, b2 = self._split(flat)
            outputs = torch.relu(inputs @ w1 + b1[:, None]) @ w2 + b2[:, None]
            losses = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), labels.flatten(), reduction="sum")
            (gradient,) = torch.autograd.grad(losses / setting.batch, flat)
            flat = (flat - setting.rate * gradient).detach()
        return flat.numpy().astype(np.float64) - self.model

    def accuracy(self) -> float:
        """Share of test samples that the model gets right."""
        inputs, labels = self.setting.test
        w1, b1, w2, b2 = self._split(torch.tensor(self.model, dtype=torch.float32)[None])
        outputs = torch.relu(inputs @ w1[0] + b1[0]) @ w2[0] + b2[0]
        return float((outputs.argmax(dim=1) == labels).float().mean())


Attack = Callable[[Matrix, Matrix, np.random.Generator], Matrix]
"""(what the honest send, what the liars would send, randomness) → what the liars send."""


def _noise(length: float, like: Matrix, rng: np.random.Generator) -> Matrix:
    drawn = rng.normal(size=like.shape)
    return np.asarray(length * drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _norm(honest: Matrix) -> float:
    return float(np.median(np.linalg.norm(honest, axis=1)))


ATTACKS: dict[str, Attack] = {
    "sign flip": lambda honest, own, rng: np.repeat(-honest.mean(axis=0, keepdims=True), len(own), 0),
    "inner product": lambda honest, own, rng: np.repeat(-0.5 * honest.mean(axis=0, keepdims=True), len(own), 0),
    "a little is enough": lambda honest, own, rng: np.repeat(
        (honest.mean(axis=0) - 1.5 * honest.std(axis=0))[None], len(own), 0
    ),
    "mimic": lambda honest, own, rng: np.repeat(honest[:1], len(own), 0),
    "label flip": lambda honest, own, rng: own,
    "Gaussian": lambda honest, own, rng: _noise(10.0 * _norm(honest), own, rng),
    "zero": lambda honest, own, rng: np.zeros_like(own),
    "scaled": lambda honest, own, rng: 10.0 * own,
    "random": lambda honest, own, rng: _noise(_norm(honest), own, rng),
}
NOBODY = "nobody lies"
Combine = Callable[[Matrix], NDArray[np.float64]]


def ours(name: str, liars: int, radius: float) -> Combine:
    """The server's rule of that name."""
    pre, _, method = name.rpartition("+")
    told: dict[str, Any] = {"radius": radius, "iterations": 3} if method == "centred-clipping" else {}
    if pre or method in ("trimmed-mean", "krum", "multi-krum", "mean-around-median"):
        told["f"] = liars
    rule = rule_for(method, told, pre or None)
    return lambda updates: np.concatenate(list(Combination(rule, ArrayRows.of(updates)).chunks()))


def is_lost(updates: Matrix) -> bool:
    """Whether training has run away beyond all numbers, which counts as nothing right."""
    return not np.abs(updates).max() < 1e30


def lied(crowd: Crowd, attack: str, liars: int, rng: np.random.Generator) -> Matrix:
    """A round's updates, the last `liars` of which are lies."""
    honest = crowd.devices - liars
    updates = crowd.changes(range(honest, crowd.devices) if attack == "label flip" else range(0))
    if liars:
        updates[honest:] = ATTACKS[attack](updates[:honest], updates[honest:], rng)
    return updates


def run(setting: Setting, rule: str, attack: str, liars: int, seed: int) -> float:
    """Accuracy of one training with `liars` of the devices lying."""
    crowd, rng = Crowd(setting, DEVICES, seed), np.random.default_rng(seed + 1)
    name = rule.removeprefix("byzfl ")
    other = theirs(name, liars, setting.radius) if name != rule else None
    combine, scores = other or ours(name, liars, setting.radius), []
    for number in range(setting.rounds):
        updates = lied(crowd, attack, liars, rng)
        if is_lost(updates):
            return 0.0
        crowd.model = crowd.model + combine(updates)
        if number >= setting.rounds - LAST_ROUNDS:
            scores.append(crowd.accuracy())
    return float(np.mean(scores))


def same_as_byzfl(setting: Setting, rules: Sequence[str], seed: int, rounds: int = 3) -> str:
    """Whether byzfl's rules of the same name give the same on the same updates, by every attack at f = 20 %."""
    if not has_byzfl():
        return ""
    liars, gaps = DEVICES // 5, dict.fromkeys([rule for rule in rules if "geometric" not in rule], 0.0)
    for attack in ATTACKS:
        crowd, rng = Crowd(setting, DEVICES, seed), np.random.default_rng(seed)
        for _ in range(rounds):
            updates = lied(crowd, attack, liars, rng)
            for rule in gaps:
                mine, other = ours(rule, liars, setting.radius)(updates), theirs(rule, liars, setting.radius)
                assert other is not None
                gap = float(np.abs(other(updates) - mine).max() / max(np.abs(mine).max(), 1e-12))
                gaps[rule] = max(gaps[rule], gap)
            crowd.model = crowd.model + updates[: DEVICES - liars].mean(axis=0)
    same = [rule for rule, gap in gaps.items() if gap <= SAME]
    text = (
        f"\nOn {rounds * len(ATTACKS)} sets of updates ({rounds} rounds of each attack, f = 20 %) byzfl's rules of the "
        f"same name gave the same result for {', '.join(same)}: relative differences up to "
        f"{max(gaps[rule] for rule in same):.0e}."
    )
    for rule in gaps.keys() - set(same):
        text += (
            f" {rule} differs by up to {gaps[rule]:.0e}: where values left and right of the median are equally far, "
            "which of them count is not defined, and mixing makes many such."
        )
    return text + "\n"


@dataclass(frozen=True, slots=True)
class _Pairs:
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    trust: NDArray[np.float64]


def sybils(setting: Setting, rule: str, attack: str, seed: int) -> float:
    """Accuracy with 40 honest devices and 60 made up ones; 2 % of all ties are between the two, 3 devices known."""
    import networkx as nx

    rng = np.random.default_rng(seed)
    edges = [(a, b, float(rng.uniform(0.5, 1))) for a, b in nx.watts_strogatz_graph(40, 8, 0.3, seed=seed).edges]
    edges += [(a + 40, b + 40, 1.0) for a, b in nx.watts_strogatz_graph(60, 8, 0.3, seed=seed).edges]
    edges += [(int(rng.integers(40)), int(rng.integers(40, 100)), 0.9) for _ in range(int(0.02 * len(edges)))]
    a, b, trust = zip(*edges, strict=True)
    found = say(100, _Pairs(np.array(a), np.array(b), np.array(trust)), [0, 1, 2]).tolist()
    crowd = Crowd(setting, 40, seed)
    method, told = rule.partition("+")[2], {"share": 0.2} if "trimmed" in rule else {}
    told |= {"radius": setting.radius, "iterations": 3} if "clipping" in rule else {}
    for _ in range(setting.rounds):
        honest = crowd.changes(range(0))
        lies = ATTACKS[attack](honest, np.repeat(honest, 2, 0)[:60], rng)
        if is_lost(honest) or is_lost(lies):
            return 0.0
        rows = ArrayRows.of(np.concatenate([honest, lies]))
        plain = not rule.startswith("trust")
        run = Combination(rule_for(method or rule, told), rows, trust=None if plain else found)
        crowd.model = crowd.model + np.concatenate(list(run.chunks()))
    return crowd.accuracy()


def sections(setting: Setting, seed: int, rules: tuple[str, ...], fractions: tuple[float, ...]) -> Iterator[str]:
    """One data set, told anew after each share of liars."""
    started, beside = time.perf_counter(), same_as_byzfl(setting, rules, seed)
    runs = [*rules, *(BYZFL_RUNS if has_byzfl() else ())]
    found: dict[tuple[str, str, float], float] = {}
    for fraction in (0.0, *fractions):
        liars = round(fraction * DEVICES)
        for rule in runs:
            for attack in ATTACKS if liars else (NOBODY,):
                found[rule, attack, fraction] = run(setting, rule, attack, liars, seed)
        print(f"{setting.name} f = {fraction:.0%}: {time.perf_counter() - started:.0f} s", flush=True)
        if fraction >= 0.2:
            yield told(setting, runs, found) + beside


def told(setting: Setting, runs: Sequence[str], found: Mapping[tuple[str, str, float], float]) -> str:
    """Worst case of every rule by f, then all attacks at 20 %."""
    fractions = sorted({f for *_, f in found})
    worst = {
        (rule, f): min(score for (r, _, g), score in found.items() if (r, g) == (rule, f))
        for rule in runs
        for f in fractions
    }
    clean, ours = worst["mean", 0.0], [rule for rule in runs if not rule.startswith("byzfl ")]
    rows = [[rule, *(f"{worst[rule, f]:.1%}" for f in fractions)] for rule in runs]
    text = f"## {setting.name}\n\nClean (mean, nobody lies): **{clean:.1%}**. Worst accuracy over the nine attacks:\n\n"
    text += table(["rule", *(f"f = {f:.0%}" for f in fractions)], rows)
    best = max(ours, key=lambda rule: worst[rule, 0.1] + worst[rule, 0.2])
    text += f"\n**One best rule: {best}.** "
    for f, goal in ((0.1, 3), (0.2, 6)):
        lost = 100 * (clean - worst[best, f])
        text += f"At f = {f:.0%} it loses {lost:.1f} points at worst (goal {goal}: {_met(lost <= goal)}). "
    rivals = [rule for rule in runs if rule not in ours]
    if rivals:
        rival = max(rivals, key=lambda rule: worst[rule, 0.1] + worst[rule, 0.2])
        ahead = [100 * (worst[best, f] - worst[rival, f]) for f in (0.1, 0.2)]
        text += (
            f"Of byzfl's rules that are not the same as ours {rival.removeprefix('byzfl ')} was best, and the best "
            f"rule is {ahead[0]:+.1f} and {ahead[1]:+.1f} points from it (goal: not below: {_met(min(ahead) >= 0)})."
        )
    text += "\n\nEvery attack at f = 20 %:\n\n"
    rows = [[rule, *(f"{found[rule, attack, 0.2]:.1%}" for attack in ATTACKS)] for rule in runs]
    return text + table(["rule", *ATTACKS], rows)


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def trust_section(setting: Setting, seed: int) -> str:
    """Sixty made-up devices against forty honest ones."""
    clean = run(setting, "mean", NOBODY, 0, seed)
    attacks = ("sign flip", "inner product", "a little is enough", "Gaussian", "scaled")
    rules = ("mean", "median", "trust+mean", "trust+trimmed-mean", "trust+centred-clipping")
    rows = []
    for rule in rules:
        scores = [sybils(setting, rule, attack, seed) for attack in attacks]
        rows.append([rule, *(f"{score:.1%}" for score in scores), f"{min(scores) / clean:.0%}"])
    return (
        f"## By trust: 60 % made-up devices ({setting.name})\n\nClean: {clean:.1%}. 40 honest devices, 60 made up who "
        "trust each other fully, 2 % of all ties between the two, 3 devices known to the publisher. Goal: a rule by "
        "trust keeps at least 80 % of the clean accuracy.\n\n" + table(["rule", *attacks, "worst, of clean"], rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=("digits", "fashion"), default="digits")
    parser.add_argument("--full", action="store_true", help="all rules, and up to 40 % of liars")
    parser.add_argument("--rules", default="", help="only these of our rules, with commas between; mean must be one")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COTERIE_DATA", ".")))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    single_threaded()
    setting = digits() if given.name == "digits" else fashion(given.data)
    if setting is None:
        raise SystemExit(
            "the files of Fashion-MNIST are not there: apt-get install dataset-fashion-mnist, or give --data"
        )
    rules, fractions = (RULES, FRACTIONS) if given.full else (QUICK, FRACTIONS[:2])
    rules = tuple(given.rules.split(",")) if given.rules else rules
    chosen = f"{' --full' if given.full else ''}{f' --rules {given.rules}' if given.rules else ''}"
    command = f"python -m coterie_lab.rules {given.name}{chosen} --seed {given.seed}"
    head = (
        f"# Attacks against rules: {setting.name}\n\n`{command}`: {DEVICES} devices, Dirichlet 0.5, {setting.steps} "
        f"local steps of {setting.batch} samples a round with rate {setting.rate}, {setting.rounds} rounds, one seed; "
        f"accuracy is the mean over the last {LAST_ROUNDS} rounds. f of the devices lie, all in the same way, knowing "
        "what the honest ones send. The rules are the server's own code on the same kind of updates; `byzfl` rows are "
        "that package's approximations with its own parameters, and rules that only it has. With one seed a point or "
        "two is chance; at 30 and 40 % on data this uneven no rule without trust can promise anything. Rounds and rate "
        "were chosen after other runs, most of which missed the goals ([which](../performance.md#rules-benchrulespy)), "
        "and the best rule is chosen on the seed and the test samples it is judged by. 0.0% is a training that ran "
        "away beyond all numbers.\n\n"
    )
    by_trust = "\n" + trust_section(setting, given.seed) if given.name == "digits" else ""
    for text in sections(setting, given.seed, rules, fractions):
        (given.out / f"rules-{given.name}.md").write_text(head + text + by_trust)


if __name__ == "__main__":
    main()
