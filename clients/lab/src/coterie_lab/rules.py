"""Attacks against rules, on the server's own code: `python -m coterie_lab.rules [digits|fashion] [--full]`.

Writes `rules-digits.md` or `rules-fashion.md`: 20 devices learn with uneven data (Dirichlet 0.5) while f of them lie in
one of nine ways; every rule of the server combines the same kind of updates, and so does the byzfl package where it is
installed. Quick runs take six rules and up to 20 % of liars; `--full` takes all rules and up to 40 %. With several
`--seeds` every accuracy is the mean over them; with `--rules` these alone are tried with every seed, and of a full run
all others with the first. `--more` are further seeds for the best rule and byzfl's best alone. The page is written anew
after each part; with `--keep FILE` a run that was stopped goes on where it was. The four files of Fashion-MNIST are
looked for in the data folder (`--data`, COTERIE_DATA), or where Debian's package puts them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.learning.training import single_threaded
from coterie_lab.byzfl_rules import has_byzfl, theirs
from coterie_lab.crowd import Crowd, Matrix, Setting, digits, fashion
from coterie_lab.lies import ATTACKS, NOBODY, is_lost, lied
from coterie_lab.rules_report import (
    JUDGED,
    LIMIT_SECONDS,
    Scores,
    by_trust,
    champions,
    duel,
    every_attack,
    head,
    told,
    worst_cases,
)
from services.aggregation.domain.rules.axis import rule_for
from services.aggregation.domain.rules.combining import Combination
from services.aggregation.domain.rules.geometry import Gram
from services.aggregation.domain.rules.mixing import Neighbours
from services.aggregation.domain.rules.rows import ArrayRows
from services.aggregation.domain.rules.weighting import say

DEVICES = 20
SOCIETY, SYBILS = 100, 60
"""Devices where trust is tried, and how many of them are made up."""
FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4)
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

Combine = Callable[[Matrix], NDArray[np.float64]]


def ours(name: str, liars: int, radius: float) -> Combine:
    """The server's rule of that name."""
    pre, _, method = name.rpartition("+")
    told: dict[str, Any] = {"radius": radius, "iterations": 3} if method == "centred-clipping" else {}
    if pre or method in ("trimmed-mean", "krum", "multi-krum", "mean-around-median"):
        told["f"] = liars
    rule = rule_for(method, told, pre or None)
    return lambda updates: np.concatenate(list(Combination(rule, ArrayRows.of(updates)).chunks()))


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


class TookTooLong(Exception):
    """A training needs more computing time than it may have."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises inside after so much of this process's own computing time, however busy the machine is."""

    def stop(*_: object) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Trainings:
    """Accuracies of trainings with every seed. With a file each is kept when it ends and never done again."""

    def __init__(
        self, setting: Setting, seeds: Sequence[int], file: Path | None, limit_seconds: float = LIMIT_SECONDS
    ) -> None:
        self.setting, self.seeds = setting, seeds
        self._file, self._limit_seconds = file, limit_seconds
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self._kept: dict[tuple[object, ...], float | None] = {
            tuple(key): score for key, score in map(json.loads, lines)
        }

    def scores(self, rule: str, attack: str, liars: int, train: Train | None = None) -> Scores:
        """One for each seed, of `run` or another way to train; after one that does not end no more are tried."""
        result = []
        for seed in self.seeds:
            score = self._score(rule, attack, liars, seed, train or run)
            if score is None:
                return None
            result.append(score)
        return result

    def _score(self, rule: str, attack: str, liars: int, seed: int, train: Train) -> float | None:
        setting = self.setting
        radius = setting.radius if "clipping" in rule else 0.0
        key = (setting.name, setting.rounds, setting.rate, radius, rule, attack, liars, seed)
        if key not in self._kept:
            try:
                with at_most(self._limit_seconds):
                    self._kept[key] = train(setting, rule, attack, liars, seed)
            except TookTooLong:
                self._kept[key] = None
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
                own, other = ours(rule, liars, setting.radius)(updates), theirs(rule, liars, setting.radius)
                assert other is not None
                gap = float(np.abs(other(updates) - own).max() / max(np.abs(own).max(), 1e-12))
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
    result = say(SOCIETY, _Pairs(np.array(a), np.array(b), np.array(trust)), [0, 1, 2]).tolist()
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
        run = Combination(rule_for(method or rule, told), rows, trust=None if plain else result)
        crowd.model = crowd.model + np.concatenate(list(run.chunks()))
    return crowd.accuracy()


Everything = dict[tuple[str, str, float], Scores]


def tried(trainings: Trainings, runs: Sequence[str], fractions: Sequence[float]) -> Iterator[Everything]:
    """Every rule against every attack, told anew after each share of liars."""
    started, result = time.perf_counter(), Everything()
    for fraction in fractions:
        liars = round(fraction * DEVICES)
        for rule in runs:
            if not liars and rule == "byzfl caf":
                continue  # it has no answer where nobody may lie
            for attack in ATTACKS if liars else (NOBODY,):
                result[rule, attack, fraction] = trainings.scores(rule, attack, liars)
        print(f"{trainings.setting.name} f = {fraction:.0%}: {time.perf_counter() - started:.0f} s", flush=True)
        yield result


def sections(given: argparse.Namespace, setting: Setting) -> Iterator[str]:
    """The page's parts one after the other; one that begins like the last takes its place."""
    seeds, more = _whole(given.seeds), _whole(given.more)
    everybody, fractions = (RULES, FRACTIONS) if given.full else (QUICK, FRACTIONS[:3])
    rules = tuple(given.rules.split(",")) if given.rules else everybody
    others = BYZFL_RUNS if has_byzfl() else ()
    trainings = Trainings(setting, seeds, given.keep)
    runs, title, result = [*rules, *others], f"## {setting.name}\n\n", Everything()
    for result in tried(trainings, runs, fractions):
        if set(JUDGED) <= {f for *_, f in result}:
            yield title + told(runs, result)
    yield title + told(runs, result) + same_as_byzfl(setting, everybody, seeds[0])
    best, rival = champions(runs, result)
    if more and rival:
        both = Trainings(setting, [*seeds, *more], given.keep)
        *_, pairs = tried(both, [best, rival], JUDGED)
        yield duel(best, rival, pairs, both.seeds)
    if setting.name == "digits":
        yield trust_section(trainings)
    if set(everybody) - set(rules):
        runs = [*everybody, *others]
        *_, result = tried(Trainings(setting, seeds[:1], given.keep), runs, fractions)
        yield f"\n## All rules, seed {seeds[0]}\n\n" + worst_cases(runs, result) + every_attack(runs, result)


def trust_section(trainings: Trainings) -> str:
    """Sixty made-up devices against forty honest ones."""
    clean = float(np.mean(trainings.scores("mean", NOBODY, 0) or ()))
    attacks = ("sign flip", "inner product", "a little is enough", "Gaussian", "scaled")
    rules = ("mean", "median", "trust+mean", "trust+trimmed-mean", "trust+centred-clipping")
    result = {
        (rule, attack): trainings.scores(rule, attack, SYBILS, sybils) or () for rule in rules for attack in attacks
    }
    return by_trust(result, clean, trainings.setting.name)


def _whole(numbers: str) -> list[int]:
    return [int(item) for item in numbers.split(",") if item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=("digits", "fashion"), default="digits")
    parser.add_argument("--full", action="store_true", help="all rules, and up to 40 %% of liars")
    parser.add_argument("--rules", default="", help="of our rules these with every seed; mean must be one")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COTERIE_DATA", ".")))
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--seeds", default="1", help="whole numbers with commas between: accuracies are their means")
    parser.add_argument("--more", default="", help="further seeds, for the best rule and byzfl's best alone")
    parser.add_argument("--keep", type=Path, help="a file for finished trainings, from which a stopped run goes on")
    given = parser.parse_args()
    single_threaded()
    setting = digits() if given.name == "digits" else fashion(given.data)
    if setting is None:
        raise SystemExit(
            "the files of Fashion-MNIST are not there: apt-get install dataset-fashion-mnist, or give --data"
        )
    words = [
        word
        for flag in ("rules", "seeds", "more")
        if getattr(given, flag)
        for word in (f"--{flag}", getattr(given, flag))
    ]
    command = " ".join(["python -m coterie_lab.rules", given.name, *(["--full"] * given.full), *words])
    parts = {"": head(setting, command, DEVICES, LAST_ROUNDS, _whole(given.seeds))}
    given.out.mkdir(parents=True, exist_ok=True)
    for part in sections(given, setting):
        parts[part.partition("\n\n")[0]] = part
        (given.out / f"rules-{given.name}.md").write_text("".join(parts.values()))


if __name__ == "__main__":
    main()
