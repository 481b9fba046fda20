"""Attacks against rules, on the server's own code: `python -m coterie_lab.rules [digits|fashion] [--full]`.

Writes `rules-digits.md` or `rules-fashion.md`: 20 devices learn with uneven data (Dirichlet 0.5) while f of them lie in
one of nine ways; every rule of the server combines the same kind of updates, and so does the byzfl package where it is
installed. Quick runs take six rules and up to 20 % of liars; `--full` takes all rules and up to 40 %. With several
`--seeds` every accuracy is the mean over them. The page is written anew after each share of liars; with `--keep FILE` a
run that was stopped goes on where it was. The four files of Fashion-MNIST are looked for in the data folder (`--data`,
COTERIE_DATA), or where Debian's package puts them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.training import single_threaded
from coterie_lab.byzfl_rules import has_byzfl, theirs
from coterie_lab.crowd import Crowd, Matrix, Setting, digits, fashion
from coterie_lab.markdown import table
from services.aggregation.domain.rules.axis import rule_for
from services.aggregation.domain.rules.combining import Combination
from services.aggregation.domain.rules.geometry import Gram
from services.aggregation.domain.rules.mixing import Neighbours
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.domain.rules.weighting import say

DEVICES = 20
SOCIETY, SYBILS = 100, 60
"""Devices where trust is tried, and how many of them are made up."""
FRACTIONS = (0.1, 0.2, 0.3, 0.4)
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
    combine, scores = beside(rule, liars, setting.radius, seed), []
    for number in range(setting.rounds):
        updates = lied(crowd, attack, liars, rng)
        if is_lost(updates):
            return 0.0
        crowd.model = crowd.model + combine(updates)
        if number >= setting.rounds - LAST_ROUNDS:
            scores.append(crowd.accuracy())
    return float(np.mean(scores))


def beside(rule: str, liars: int, radius: float, seed: int) -> Combine:
    """The server's rule, or "byzfl …" for that package's, after the server's mixing, which is the same and faster."""
    if not rule.startswith("byzfl "):
        return ours(rule, liars, radius)
    pre, _, method = rule.removeprefix("byzfl ").rpartition("+")
    other = theirs(method, liars, radius)
    assert other is not None
    np.random.seed(seed)  # the generator that byzfl draws from
    return (lambda updates: other(mixed(updates, liars))) if pre else other


def mixed(updates: Matrix, liars: int) -> Matrix:
    """Every update as the mean of its nearest, which is what byzfl's NNM gives (`test_byzfl_finds_the_same`)."""
    squared = Gram.of(ArrayRows.of(updates), None).squared_distances()
    return Neighbours(liars).mixture(squared, np.ones(len(updates)), np.arange(len(updates))) @ updates


Train = Callable[[Setting, str, str, int, int], float]
"""(data, rule, attack, liars, seed) → accuracy."""


class Trainings:
    """Accuracies of trainings with every seed. With a file each is kept when it ends and never done again."""

    def __init__(self, setting: Setting, seeds: Sequence[int], file: Path | None) -> None:
        self._setting, self._seeds, self._file = setting, seeds, file
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self._kept: dict[tuple[object, ...], float] = {tuple(key): score for key, score in map(json.loads, lines)}

    def scores(self, rule: str, attack: str, liars: int, train: Train | None = None) -> list[float]:
        """One for each seed, of `run` or another way to train."""
        return [self._score(rule, attack, liars, seed, train or run) for seed in self._seeds]

    def _score(self, rule: str, attack: str, liars: int, seed: int, train: Train) -> float:
        setting = self._setting
        radius = setting.radius if "clipping" in rule else 0.0
        key = (setting.name, setting.rounds, setting.rate, radius, rule, attack, liars, seed)
        if key not in self._kept:
            self._kept[key] = train(setting, rule, attack, liars, seed)
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(json.dumps([key, self._kept[key]]) + "\n")
        return self._kept[key]


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


def sybils(setting: Setting, rule: str, attack: str, made_up: int, seed: int) -> float:
    """Accuracy with 40 honest devices and 60 made up ones; 2 % of all ties are between the two, 3 devices known."""
    honest_devices = SOCIETY - made_up
    import networkx as nx

    rng = np.random.default_rng(seed)
    edges = [
        (a, b, float(rng.uniform(0.5, 1))) for a, b in nx.watts_strogatz_graph(honest_devices, 8, 0.3, seed=seed).edges
    ]
    edges += [
        (a + honest_devices, b + honest_devices, 1.0)
        for a, b in nx.watts_strogatz_graph(made_up, 8, 0.3, seed=seed).edges
    ]
    edges += [
        (int(rng.integers(honest_devices)), int(rng.integers(honest_devices, SOCIETY)), 0.9)
        for _ in range(int(0.02 * len(edges)))
    ]
    a, b, trust = zip(*edges, strict=True)
    found = say(SOCIETY, _Pairs(np.array(a), np.array(b), np.array(trust)), [0, 1, 2]).tolist()
    crowd = Crowd(setting, honest_devices, seed)
    method, told = rule.partition("+")[2], {"share": 0.2} if "trimmed" in rule else {}
    told |= {"radius": setting.radius, "iterations": 3} if "clipping" in rule else {}
    for _ in range(setting.rounds):
        honest = crowd.changes(range(0))
        lies = ATTACKS[attack](honest, np.repeat(honest, 2, 0)[:made_up], rng)
        if is_lost(honest) or is_lost(lies):
            return 0.0
        rows = ArrayRows.of(np.concatenate([honest, lies]))
        plain = not rule.startswith("trust")
        run = Combination(rule_for(method or rule, told), rows, trust=None if plain else found)
        crowd.model = crowd.model + np.concatenate(list(run.chunks()))
    return crowd.accuracy()


Found = Mapping[tuple[str, str, float], Sequence[float]]
"""Accuracies by rule, attack and share of liars, one for each seed."""


def sections(
    trainings: Trainings, setting: Setting, seed: int, rules: tuple[str, ...], fractions: tuple[float, ...]
) -> Iterator[str]:
    """One data set, told anew after each share of liars."""
    started, same = time.perf_counter(), same_as_byzfl(setting, rules, seed)
    runs = [*rules, *(BYZFL_RUNS if has_byzfl() else ())]
    found: dict[tuple[str, str, float], Sequence[float]] = {}
    for fraction in (0.0, *fractions):
        liars = round(fraction * DEVICES)
        for rule in runs:
            if not liars and rule == "byzfl caf":
                continue  # it has no answer where nobody may lie
            for attack in ATTACKS if liars else (NOBODY,):
                found[rule, attack, fraction] = trainings.scores(rule, attack, liars)
        print(f"{setting.name} f = {fraction:.0%}: {time.perf_counter() - started:.0f} s", flush=True)
        if fraction >= 0.2:
            yield told(setting, runs, found) + same


def worst_of(found: Found, rule: str, fraction: float) -> float | None:
    """The least accuracy over all attacks, each the mean over the seeds; None where none was tried."""
    means = [float(np.mean(scores)) for (r, _, f), scores in found.items() if (r, f) == (rule, fraction)]
    return min(means, default=None)


def told(setting: Setting, runs: Sequence[str], found: Found) -> str:
    """Worst case of every rule by f, then all attacks at 20 %."""
    fractions = sorted({f for *_, f in found})
    worst = {(rule, f): worst_of(found, rule, f) for rule in runs for f in fractions}
    rows = [[rule, *(_percent(worst[rule, f]) for f in fractions)] for rule in runs]
    clean = worst["mean", 0.0]
    assert clean is not None
    text = f"## {setting.name}\n\nClean (mean, nobody lies): **{clean:.1%}**. Worst accuracy over the nine attacks:\n\n"
    text += table(["rule", *(f"f = {f:.0%}" for f in fractions)], rows)
    text += _best(runs, found, clean) + "\n\nEvery attack at f = 20 %:\n\n"
    rows = [[rule, *(f"{np.mean(found[rule, attack, 0.2]):.1%}" for attack in ATTACKS)] for rule in runs]
    return text + table(["rule", *ATTACKS], rows)


def _best(runs: Sequence[str], found: Found, clean: float) -> str:
    """Which rule is best at 10 and 20 %, what it loses there, and how far it is from the best of byzfl's."""

    def of(rule: str, f: float) -> float:
        return worst_of(found, rule, f) or 0.0

    ours = [rule for rule in runs if not rule.startswith("byzfl ")]
    best = max(ours, key=lambda rule: of(rule, 0.1) + of(rule, 0.2))
    text = f"\n**One best rule: {best}.** "
    for f, goal in ((0.1, 3), (0.2, 6)):
        lost = 100 * (clean - of(best, f))
        text += f"At f = {f:.0%} it loses {lost:.1f} points at worst (goal {goal}: {_met(lost <= goal)}). "
    rivals = [rule for rule in runs if rule not in ours]
    if not rivals:
        return text
    rival = max(rivals, key=lambda rule: of(rule, 0.1) + of(rule, 0.2))
    ahead = [100 * (of(best, f) - of(rival, f)) for f in (0.1, 0.2)]
    seeds = range(len(found["mean", NOBODY, 0.0]))
    by_seed = [
        [100 * (_worst_at(found, best, f, i) - _worst_at(found, rival, f, i)) for f in (0.1, 0.2)] for i in seeds
    ]
    text += (
        f"Of byzfl's rules that are not the same as ours {rival.removeprefix('byzfl ')} was best, and the best "
        f"rule is {ahead[0]:+.1f} and {ahead[1]:+.1f} points from it (goal: not below: {_met(min(ahead) >= 0)}"
    )
    text += f"; by seed {', '.join(f'{one:+.1f} and {two:+.1f}' for one, two in by_seed)})." if len(seeds) > 1 else ")."
    return text


def _worst_at(found: Found, rule: str, fraction: float, seed: int) -> float:
    """The least accuracy over all attacks with one seed, by its place."""
    return min(scores[seed] for (r, _, f), scores in found.items() if (r, f) == (rule, fraction))


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def trust_section(trainings: Trainings, setting: Setting) -> str:
    """Sixty made-up devices against forty honest ones."""
    clean = float(np.mean(trainings.scores("mean", NOBODY, 0)))
    attacks = ("sign flip", "inner product", "a little is enough", "Gaussian", "scaled")
    rules = ("mean", "median", "trust+mean", "trust+trimmed-mean", "trust+centred-clipping")
    rows = []
    for rule in rules:
        scores = [float(np.mean(trainings.scores(rule, attack, SYBILS, sybils))) for attack in attacks]
        rows.append([rule, *(f"{score:.1%}" for score in scores), f"{min(scores) / clean:.0%}"])
    return (
        f"## By trust: 60 % made-up devices ({setting.name})\n\nClean: {clean:.1%}. 40 honest devices, 60 made up who "
        "trust each other fully, 2 % of all ties between the two, 3 devices known to the publisher. Goal: a rule by "
        "trust keeps at least 80 % of the clean accuracy.\n\n" + table(["rule", *attacks, "worst, of clean"], rows)
    )


def head(setting: Setting, command: str, seeds: Sequence[int]) -> str:
    """What was run, and what to think of it."""
    several = f"mean over {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    chance = "" if len(seeds) > 1 else "With one seed a point or two is chance. "
    pixels = " 12,000 images for training, 4,000 to test, as 14 × 14 means of 2 × 2 pixels." * (
        setting.name != "digits"
    )
    return (
        f"# Attacks against rules: {setting.name}\n\n`{command}`: {DEVICES} devices, Dirichlet 0.5, {setting.steps} "
        f"local steps of {setting.batch} samples a round with rate {setting.rate}, {setting.hidden} hidden units, "
        f"{setting.rounds} rounds, {several}; accuracy is the mean over the last {LAST_ROUNDS} rounds.{pixels} f of "
        "the devices lie, all in the same way, knowing what the honest ones send. The rules are the server's own code "
        "on the same kind of updates; `byzfl` rows are that package's approximations with its own parameters, and "
        f"rules that only it has (caf has no answer at f = 0). {chance}At 30 and 40 % on data this uneven no rule "
        "without trust can promise anything. Rounds and rate were chosen after other runs, most of which missed the "
        "goals ([which](../performance.md#rules-benchrulespy)), and the best rule is chosen on the seeds and the test "
        f"samples it is judged by; the radius of centred clipping, {setting.radius:g}, was chosen on seed 0 at "
        "f = 20 %, of 1, 0.5 and 0.3. 0.0% is a training that ran away beyond all numbers.\n\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=("digits", "fashion"), default="digits")
    parser.add_argument("--full", action="store_true", help="all rules, and up to 40 %% of liars")
    parser.add_argument("--rules", default="", help="only these of our rules, with commas between; mean must be one")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COTERIE_DATA", ".")))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--seeds", default="1", help="whole numbers with commas between: accuracies are their means")
    parser.add_argument("--keep", type=Path, help="a file for finished trainings, from which a stopped run goes on")
    given = parser.parse_args()
    single_threaded()
    setting = digits() if given.name == "digits" else fashion(given.data)
    if setting is None:
        raise SystemExit(
            "the files of Fashion-MNIST are not there: apt-get install dataset-fashion-mnist, or give --data"
        )
    rules, fractions = (RULES, FRACTIONS) if given.full else (QUICK, FRACTIONS[:2])
    rules, seeds = (
        tuple(given.rules.split(",")) if given.rules else rules,
        [int(each) for each in given.seeds.split(",")],
    )
    chosen = f"{' --full' if given.full else ''}{f' --rules {given.rules}' if given.rules else ''}"
    opening = head(setting, f"python -m coterie_lab.rules {given.name}{chosen} --seeds {given.seeds}", seeds)
    trainings, by_trust = Trainings(setting, seeds, given.keep), ""
    for text in sections(trainings, setting, seeds[0], rules, fractions):
        given.out.mkdir(parents=True, exist_ok=True)
        page = given.out / f"rules-{given.name}.md"
        page.write_text(opening + text)
        if given.name == "digits":
            by_trust = by_trust or "\n" + trust_section(trainings, setting)
            page.write_text(opening + text + by_trust)


if __name__ == "__main__":
    main()
