"""Accuracy within a total ε: by secure sums that share the noise, by local noise on every device, and without noise.

Softmax regression on images. Clip norms, grids, rounding, count and noise are the product's code
(`coterie.privacy.adaptive`, `coterie.secure_sums.grid`, the discrete sampler); the masks, which cancel, are left out,
and all devices train at once in numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.privacy.adaptive import AdaptiveClip, amplitude, joint_norm, share_within
from coterie.privacy.discrete import discrete_gaussian
from coterie.privacy.grid import counted, rounded, scale_for, sigma_for
from coterie.privacy.lifetime import multiplier_for
from coterie.privacy.simulation import SeededStream
from coterie.privacy.stream import Stream
from coterie.samples import dirichlet_shares
from coterie.secure_sums.grid import choose_grid
from coterie_lab.mesh_data import Images
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
        """The change of every device's model after `steps` full-batch steps, one row each."""
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


# --- the three methods ------------------------------------------------------------------------------------------------


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
    """Sum of all devices' integers and noise."""
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


METHODS = {"secure sum": secure_mean, "each by itself": local_mean, "no noise": clear_mean}


def accuracy(images: Images, setting: Setting, method: str, seed: int) -> tuple[float, float]:
    """Of the model after the last round, and the clip norm then."""
    fleet = Fleet.dealt(images, setting.devices, setting.concentration, seed)
    model, clip_norm = np.zeros((fleet.inputs.shape[2], CLASSES)), setting.clip_norm
    there = setting.devices - math.floor(setting.lost * setting.devices)
    random, adaptive = np.random.default_rng(seed), AdaptiveClip(0.5)
    for number in range(setting.rounds):
        who = np.sort(random.permutation(setting.devices)[:there])
        changes = fleet.trained(model, who, setting.rate, setting.steps)
        mean, within = METHODS[method](changes, setting, clip_norm, SeededStream(seed, method, number))
        model = model + mean.reshape(model.shape)
        if setting.adaptive:
            clip_norm = adaptive.next(clip_norm, within, setting.clip_norm)
    return fleet.accuracy(model), clip_norm
