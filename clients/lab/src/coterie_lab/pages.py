"""A page per paper, made from stored results: claims with their computed verdicts, figures with spread, plots.

Plots are `coterie_lab.plots`; the paper's own numbers stand beside ours in every table that they are known for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie_lab.claims import ROUNDING, Judged, judge
from coterie_lab.experiment import Experiment, Mode, Plot
from coterie_lab.plots import Curves, draw
from coterie_lab.readings import Reading, Seeded, by_seed
from coterie_lab.runs import Outcome, RunFolder

PAPERS = {
    "scfl": "[SCFL] Social Cluster-Based Federated Learning",
    "betta": "[BETTA] Online Decentralized Learning for the Social Internet of Things",
    "mppfl": "[MPPFL] Multi-Hop Privacy Propagation",
    "capp": "[CAPP] Correlation-Aware and Personalized Privacy-Preserving Data Collection",
    "dpvd": "[DPVD] Multi-Task Clusters over Scheduled Cells",
    "agents": "Real services and agents",
    "ours": "Our own experiments",
}
WORDS = {"reproduced": "**reproduced**", "differs": "**differs**", "not testable": "not testable"}
CURVE_POINTS = 8
"""A table shows a curve at this many of its x."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An experiment with the results that a page is made from."""

    experiment: Experiment
    folder: RunFolder
    outcomes: tuple[Outcome, ...]

    @property
    def seeds(self) -> list[Seeded]:
        """Readings by seed; a seed of which any trial failed is left out whole and counted by `failures`."""
        broken = {outcome.work.seed for outcome in self.failures}
        return by_seed([(o.work.seed, r) for o in self.outcomes for r in o.readings if o.work.seed not in broken])

    @property
    def failures(self) -> list[Outcome]:
        """Trials that ended in an error."""
        return [outcome for outcome in self.outcomes if outcome.error]

    @property
    def readings(self) -> list[tuple[int, Reading]]:
        """All readings of the seeds that count."""
        return [(seed.seed, reading) for seed in self.seeds for reading in seed.readings]


def shown(experiment: Experiment, folder: RunFolder) -> Shown:
    """The stored results of an experiment, cell after cell; what ran in another setting than today's is left out."""
    places = {cell: k for k, cell in enumerate(tuple(sorted(c.items())) for c in experiment.effort(folder.mode).cells)}
    known = [outcome for outcome in folder.stored() if outcome.work.cell in places]
    return Shown(experiment, folder, tuple(sorted(known, key=lambda item: (places[item.work.cell], item.work.seed))))


def page(paper: str, parts: Sequence[Shown], pictures: Path, mode: Mode, absent: Sequence[str] = ()) -> str:
    """The whole page, which names experiments without results; its pictures are written to the folder given."""
    lines = [
        f"# {PAPERS[paper]}",
        "",
        f"Made by `lab report {paper}` from `lab run {paper}-… --{mode}`, on the services' and the device's own code. "
        "Verdicts are computed: each seed gives a margin (positive where the claim holds); *reproduced* "
        "means that the 95 % interval of their mean lies above zero, *differs* that it lies below, *not testable* that "
        "it does neither or that nothing was measured.",
        "",
    ]
    if absent:
        lines += [f"Not run for this page: {', '.join(f'`{name}`' for name in absent)}.", ""]
    for part in parts:
        lines += _section(part, pictures)
    return "\n".join(lines).rstrip() + "\n"


def _section(part: Shown, pictures: Path) -> list[str]:
    item = part.experiment
    spent = sum(outcome.seconds for outcome in part.outcomes)
    lines = [
        f"## {item.title}",
        "",
        f"`{item.name}`, {item.shows}. {item.setting}"
        + (f" Trained by the {item.kernel} kernel." if item.kernel else ""),
        "",
    ]
    lines += [f"- Unlike the paper: {deviation}" for deviation in item.deviations]
    lines += [f"- Data: {_source(name, part)}" for name in (*item.needs, *item.uses)]
    lines += [""] if item.deviations or item.needs or item.uses else []
    for failed in part.failures:
        lines.append(
            f"- **Failed**, left out of every figure: seed {failed.work.seed}, {dict(failed.work.cell)}: {failed.error}"
        )
    lines += [""] if part.failures else []
    lines += ["| claim | verdict | margin over seeds | seeds |", "|---|---|---|---|"]
    lines += [_claim_row(judge(claim, part.seeds)) for claim in item.claims]
    for plot in item.plots:
        curves = _curves(part, plot.figure)
        if not curves:
            continue  # this mode does not measure it
        lines += ["", f"**{plot.figure}**" + (f" ({plot.y})" if plot.y != plot.figure else ""), ""]
        lines += [*_table(curves, plot), "", f"![{plot.figure}]({draw(curves, plot, item.name, pictures)}.svg)"]
    lines += ["", f"*Reading.* {item.reading}"] if item.reading else []
    effort, run = item.effort(part.folder.mode), len(part.outcomes)
    planned = len(effort.cells) * effort.seeds
    trials = f"{run} trials" if run >= planned else f"**{run} of {planned} trials**"
    lines += ["", f"{trials}, {spent:.0f} processor seconds, code {part.folder.code}.", ""]
    return lines


def _source(name: str, part: Shown) -> str:
    there = name in part.experiment.needs or name in part.folder.data()
    return f"{name}." if there else f"synthetic or smaller, because {name} was not there."


def _claim_row(judged: Judged) -> str:
    margin = "–" if math.isnan(judged.margin) else f"{judged.margin:+.3g}"
    spread = "" if math.isnan(judged.spread) else f" ± {_two(judged.spread)}"
    return f"| {judged.claim.says} | {WORDS[judged.verdict.value]} | {margin}{spread} | {judged.seeds} |"


def _curves(part: Shown, figure: str) -> Curves:
    """Series → x → values of all seeds; what has no x stands at 0."""
    result: Curves = {}
    for _, reading in part.readings:
        if reading.figure == figure:
            x = 0.0 if math.isnan(reading.x) else reading.x
            result.setdefault(reading.series, {}).setdefault(x, []).append(reading.value)
    return result


def _table(curves: Curves, plot: Plot) -> list[str]:
    """Mean ± standard deviation over seeds, for each series at some of its x, and the paper's numbers."""
    places = sorted({x for values in curves.values() for x in values})
    if len(places) > CURVE_POINTS:
        places = [places[k] for k in np.linspace(0, len(places) - 1, CURVE_POINTS).round().astype(int)]
    places = sorted({*places, *(x for points in plot.paper.values() for x, _ in points)})
    if plot.groups:
        header = ["", *(plot.groups[int(x)] for x in places)]
    elif plot.x == "":
        header = ["", "ours"]
    else:
        header = ["", f"{plot.x} = {places[0]:g}", *(f"{x:g}" for x in places[1:])] if places else [""]
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    for series, values in curves.items():
        cells = [_spread(values.get(x, [])) for x in places]
        lines.append("| " + " | ".join([series, *cells]) + " |")
    for name, points in plot.paper.items():
        cells = [next((f"{value:g}" for at, value in points if at == x), "") for x in places]
        lines.append("| " + " | ".join([f"*{name}*", *cells]) + " |")
    return lines


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    rounding = spread < ROUNDING * max(1.0, abs(mean))
    return f"{mean:.4g}" + ("" if math.isnan(spread) else " ± 0" if rounding else f" ± {_two(spread)}")


def _two(value: float) -> str:
    """Two digits, and all those before the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"


BEGIN, END = "<!-- pages of the lab: made by `lab report` -->", "<!-- end of the pages of the lab -->"


def index(folder: Path) -> None:
    """Names every page of the lab in the folder's README, with its verdicts counted, where that has room for it."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        return
    rows = ["| page | reproduced | differs | not testable |", "|---|---|---|---|"]
    for path in sorted(folder.glob("lab-*.md")):
        page = path.read_text(encoding="utf-8")
        title = page.splitlines()[0].removeprefix("# ")
        counts = [page.count(f" | {word} | ") for word in WORDS.values()]
        rows.append("| " + " | ".join([f"[{title}]({path.name})", *map(str, counts)]) + " |")
    readme.write_text("\n".join([f"{before}{begin}", "", *rows, "", f"{end}{after}"]), encoding="utf-8")
