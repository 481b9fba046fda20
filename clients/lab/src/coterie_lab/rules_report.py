"""What the page of attacks against rules says: worst cases, the best rule beside byzfl's best, and every attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from coterie_lab.crowd import Setting
from coterie_lab.lies import ATTACKS
from coterie_lab.markdown import table

LIMIT_SECONDS = 60
"""Computing time of one training, of which most need one or two seconds; what needs more is told as not ended."""
JUDGED = (0.1, 0.2)
"""Shares of liars at which rules have goals."""
GOALS = (3, 6)
"""Points that the best rule may lose there."""

Scores = Sequence[float] | None
"""Accuracies, one for each seed; None where a training did not end."""
Found = Mapping[tuple[str, str, float], Scores]
"""Scores by rule, attack and share of liars."""


def head(setting: Setting, command: str, devices: int, rounds_told: int, seeds: Sequence[int]) -> str:
    """What was run, and what to think of it."""
    several = f"mean over {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    chance = "" if len(seeds) > 1 else "With one seed a point or two is chance. "
    pixels = " 12,000 images for training, 4,000 to test, as 14 × 14 means of 2 × 2 pixels." * (
        setting.name != "digits"
    )
    return (
        f"# Attacks against rules: {setting.name}\n\n`{command}`: {devices} devices, Dirichlet 0.5, {setting.steps} "
        f"local steps of {setting.batch} samples a round with rate {setting.rate}, {setting.hidden} hidden units, "
        f"{setting.rounds} rounds, {several}; accuracy is the mean over the last {rounds_told} rounds.{pixels} f of "
        "the devices lie, all in the same way, knowing what the honest ones send. The rules are the server's own code "
        "on the same kind of updates; `byzfl` rows are that package's approximations with its own parameters, and "
        f"rules that only it has (caf has no answer at f = 0). {chance}At 30 and 40 % on data this uneven no rule "
        "without trust can promise anything. The best rule is chosen on the seeds and the test "
        f"samples it is judged by. The radius of centred clipping, {setting.radius:g} on both sets, was chosen on "
        "seeds 11, 12 and 13, of 0.3, 0.4, 0.5 and 0.7; `radius` is that number, `iterations` 3. "
        "0.0% is a training that diverged.\n\n"
    )


def told(runs: Sequence[str], found: Found) -> str:
    """Worst case of every rule by f and what follows for the best one, then every attack."""
    clean = worst_of(found, "mean", 0.0)
    assert clean is not None
    best, rival = champions(runs, found)
    text = f"Clean (mean, nobody lies): **{clean:.1%}**. Worst accuracy over the nine attacks:\n\n"
    text += worst_cases(runs, found) + _goals(best, found, clean)
    if rival:
        text += _beside(best, rival, found)
    return text + "\n" + every_attack(runs, found)


def worst_cases(runs: Sequence[str], found: Found) -> str:
    """Rules by shares of liars; what did not end is told below."""
    fractions = sorted({f for *_, f in found})
    rows = [[rule, *(_worst(found, rule, f) for f in fractions)] for rule in runs]
    endless: dict[tuple[str, float], list[str]] = {}
    for (rule, attack, f), scores in found.items():
        if scores is None:
            endless.setdefault((rule, f), []).append(attack)
    text = table(["rule", *(f"f = {f:.0%}" for f in fractions)], rows)
    if endless:
        which = "; ".join(f"{rule} at f = {f:.0%}: {', '.join(attacks)}" for (rule, f), attacks in endless.items())
        text += (
            f"\n\\* without trainings that did not end in {LIMIT_SECONDS} s of computing time, where others need "
            f"one or two: {which}.\n"
        )
    return text


def every_attack(runs: Sequence[str], found: Found) -> str:
    """A table for each share of liars."""
    text = ""
    for f in sorted({f for *_, f in found} - {0.0}):
        rows = [[rule, *(_mean(found.get((rule, attack, f))) for attack in ATTACKS)] for rule in runs]
        text += f"\nEvery attack at f = {f:.0%}:\n\n" + table(["rule", *ATTACKS], rows)
    return text


def champions(runs: Sequence[str], found: Found) -> tuple[str, str | None]:
    """The rule of ours and that of byzfl with the best worst cases at 10 and 20 % together."""

    def strength(rule: str) -> float:
        return sum(worst_of(found, rule, f) or 0.0 for f in JUDGED)

    ours = [rule for rule in runs if not rule.startswith("byzfl ")]
    rivals = [rule for rule in runs if rule not in ours]
    return max(ours, key=strength), max(rivals, key=strength, default=None)


def duel(best: str, rival: str, found: Found, seeds: Sequence[int]) -> str:
    """Two rules by every attack, on the same seeds: differences are of pairs, with their standard errors."""
    header, rows = ["attack"], [[attack] for attack in ATTACKS]
    for f in JUDGED:
        header += [f"f = {f:.0%}: {best}", rival, "difference"]
        for row, attack in zip(rows, ATTACKS, strict=True):
            own, other = _of(found, best, attack, f), _of(found, rival, attack, f)
            gaps = 100 * (own - other)
            row += [f"{own.mean():.2%}", f"{other.mean():.2%}", f"{gaps.mean():+.2f} ± {_error(gaps):.2f}"]
    text = (
        f"\n## {best} beside {rival}, {len(seeds)} seeds\n\nSeeds {', '.join(map(str, seeds))}, none of which chose "
        "the radius. Differences in points are means over the seeds, ± their standard error.\n\n"
    )
    return text + table(header, rows) + "\n" + " ".join(_verdict(best, rival, found, f) for f in JUDGED) + "\n"


def _verdict(best: str, rival: str, found: Found, f: float) -> str:
    of_means = 100 * ((worst_of(found, best, f) or 0.0) - (worst_of(found, rival, f) or 0.0))
    gaps = 100 * (_worst_by_seed(found, best, f) - _worst_by_seed(found, rival, f))
    reach = float(scipy.stats.t.ppf(0.975, len(gaps) - 1)) * _error(gaps)
    low, high = gaps.mean() - reach, gaps.mean() + reach
    word = "above" if low > 0 else "below" if high < 0 else "not told apart from"
    return (
        f"At f = {f:.0%} the worst of the attacks' means is {of_means:+.2f} points from {rival}'s; by seed, worst case "
        f"against worst case, {gaps.mean():+.2f} points (95 % interval {low:+.2f} to {high:+.2f}, above on "
        f"{int((gaps > 0).sum())} of {len(gaps)} seeds): **{word}** it."
    )


def _goals(best: str, found: Found, clean: float) -> str:
    text = f"\n**One best rule: {best}.** "
    for f, goal in zip(JUDGED, GOALS, strict=True):
        lost = 100 * (clean - (worst_of(found, best, f) or 0.0))
        text += f"At f = {f:.0%} it loses {lost:.1f} points at worst (goal {goal}: {_met(lost <= goal)}). "
    return text


def _beside(best: str, rival: str, found: Found) -> str:
    ahead = [100 * ((worst_of(found, best, f) or 0.0) - (worst_of(found, rival, f) or 0.0)) for f in JUDGED]
    by_seed = [100 * (_worst_by_seed(found, best, f) - _worst_by_seed(found, rival, f)) for f in JUDGED]
    text = (
        f"Of byzfl's rules that are not the same as ours {rival.removeprefix('byzfl ')} was best, and the best "
        f"rule is {ahead[0]:+.1f} and {ahead[1]:+.1f} points from it (goal: not below: {_met(min(ahead) >= 0)}"
    )
    pairs = ", ".join(f"{one:+.1f} and {two:+.1f}" for one, two in zip(*by_seed, strict=True))
    return text + (f"; by seed {pairs})." if len(by_seed[0]) > 1 else ").")


def worst_of(found: Found, rule: str, fraction: float) -> float | None:
    """The least accuracy over all attacks that ended, each the mean over the seeds; None where none did."""
    ended = [scores for (r, _, f), scores in found.items() if (r, f) == (rule, fraction) and scores is not None]
    return min((float(np.mean(scores)) for scores in ended), default=None)


def _worst_by_seed(found: Found, rule: str, f: float) -> np.ndarray:
    """The least accuracy over all attacks with each seed."""
    ended = [_of(found, rule, attack, f) for attack in ATTACKS if found.get((rule, attack, f)) is not None]
    worst: np.ndarray = np.min(ended, axis=0)
    return worst


def _of(found: Found, rule: str, attack: str, f: float) -> np.ndarray:
    return np.asarray(found[rule, attack, f], np.float64)


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _worst(found: Found, rule: str, f: float) -> str:
    worst = worst_of(found, rule, f)
    endless = any(scores is None for (r, _, share), scores in found.items() if (r, share) == (rule, f))
    return ("–" if worst is None else f"{worst:.1%}") + " \\*" * endless


def _mean(scores: Scores) -> str:
    return "–" if scores is None else f"{np.mean(scores):.1%}"


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def by_trust(found: Mapping[tuple[str, str], Sequence[float]], clean: float, name: str) -> str:
    """Made-up devices against honest ones: scores by rule and attack."""
    rules, attacks = dict.fromkeys(rule for rule, _ in found), dict.fromkeys(attack for _, attack in found)
    rows = []
    for rule in rules:
        scores = [float(np.mean(found[rule, attack])) for attack in attacks]
        rows.append([rule, *(f"{score:.1%}" for score in scores), f"{min(scores) / clean:.0%}"])
    return (
        f"\n## By trust: 60 % made-up devices ({name})\n\nClean: {clean:.1%}. 40 honest devices, 60 made up who "
        "trust each other fully, 2 % of all ties between the two, 3 devices known to the publisher. Goal: a rule by "
        "trust keeps at least 80 % of the clean accuracy.\n\n" + table(["rule", *attacks, "worst, of clean"], rows)
    )
