"""Attacks on what leaves devices: whose image it was, what it showed, and whether an example was there.

The attacker is the receiver: it knows the model, the rate and how many images each device has, and sees an update, the
sum of a cluster, or either with noise. The product's own code makes what it sees: clipped, noised and masked sums by
`coterie.privacy` and `coterie.secure_sums`. The victim trains in the way that is easiest to attack, one step on all its
images: an attack that fails here proves no safety, an attack that succeeds proves harm.

- *Inversion.* The first layer's slope of an image x is g·x' and its bias' slope g, so every row's quotient is a guess
  at x (L. T. Phong and others, "Privacy-preserving deep learning via additively homomorphic encryption", 2018), which
  is bettered by matching slopes (J. Geiping and others, "Inverting gradients", NeurIPS 2020).
- *Labels.* The last bias rises for classes that are there and falls for all others (B. Zhao and others, "iDLG", 2020).
- *Membership.* The update points along the slopes of the examples it was made from (M. Nasr and others, S&P 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from coterie.privacy.clipping import clip_update
from coterie.privacy.gaussian import exact_epsilon
from coterie.privacy.releases import Change
from coterie.privacy.simulation import SeededStream
from coterie_lab.federations import small_mlp
from coterie_lab.images import ImageSet
from coterie_lab.private import DELTA, Setting, secure_mean

Floats = NDArray[np.float64]
RATE, CLIP, NOISE = 0.1, 0.5, 1.0
"""Step of a victim, its clip norm, and the noise multiplier of what is noised."""
MATCHING_STEPS = 150
SUM_OF = 12
TARGETS = ("raw", "sum of 2", "sum of 4", "sum of 12", "noised", "secure sum of 12")
"""What may be attacked; the last two with noise of the same multiplier."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What an attacker has: the model's change, its mean over `devices` devices."""

    change: Tensor
    devices: int

    @property
    def slope(self) -> Tensor:
        """The mean gradient it tells of, up to clipping and noise."""
        return -self.change / RATE


@dataclass(frozen=True, slots=True, eq=False)
class Victims:
    """Devices with different images; the first one is the victim."""

    images: ImageSet
    shares: NDArray[np.int64]

    @classmethod
    def drawn(cls, images: ImageSet, per_device: int, seed: int) -> Victims:
        """Different images for as many devices as the largest sum has."""
        order = np.random.default_rng([seed, 11]).permutation(len(images.train))
        return cls(images, order[: SUM_OF * per_device].reshape(SUM_OF, per_device))

    def step(self, module: nn.Module, device: int) -> Tensor:
        """A device's change: one step on all its images."""
        places = self.shares[device]
        weights = list(module.parameters())
        loss = cross_entropy(module(self.images.train[places]), self.images.train_labels[places])
        return -RATE * torch.cat([item.reshape(-1) for item in torch.autograd.grad(loss, weights)])


def seen(module: nn.Module, victims: Victims, target: str, seed: int) -> Seen:
    """What the attacker gets of the victim in this strategy."""
    devices = 1 if target in ("raw", "noised") else int(target.rpartition(" ")[2])
    steps = [victims.step(module, device).numpy().astype(np.float64) for device in range(devices)]
    stream = SeededStream("attack", seed, target)
    if target == "noised":
        clipped = clip_update({"model": steps[0]}, CLIP).tensors
        released = Change(clipped, CLIP, NOISE).tensors(stream)["model"]
    elif target.startswith("secure"):
        once = Setting(devices, exact_epsilon(NOISE, DELTA), rounds=1)
        released, _ = secure_mean(np.stack(steps), once, CLIP, stream)
    else:
        released = np.mean([clip_update({"model": step}, CLIP).tensors["model"] for step in steps], axis=0)
    return Seen(torch.from_numpy(np.asarray(released, dtype=np.float32)), devices)


# --- inversion --------------------------------------------------------------------------------------------------------


def inverted(module: nn.Sequential, what: Seen, shape: Sequence[int], seed: int) -> list[Tensor]:
    """Guesses at images: every row's quotient, and the best of them after matching slopes."""
    weights = list(module.parameters())
    pieces = torch.split(what.slope, [item.numel() for item in weights])
    slopes = [piece.view_as(weight) for piece, weight in zip(pieces, weights, strict=True)]
    rows, biases = slopes[0], slopes[1]
    strongest = biases.abs().argsort(descending=True)[:8]
    guesses = [rows[k] / biases[k] for k in strongest.tolist() if biases[k] != 0.0]
    draw = torch.Generator().manual_seed(seed)
    begin = guesses[0] if guesses else torch.randn(rows.shape[1], generator=draw)
    return [*(guess.reshape(shape) for guess in guesses), _matched(module, slopes, begin.reshape(shape))]


def _matched(module: nn.Module, slopes: Sequence[Tensor], begin: Tensor) -> Tensor:
    """An image whose slopes point where those seen do, by descent from a guess of at most the size of an image."""
    weights, wanted = list(module.parameters()), torch.cat([slope.reshape(-1) for slope in slopes])
    label = slopes[-1].argmin().reshape(1)
    image = ((begin - begin.mean()) / begin.std().clamp(min=1e-6)).clone().requires_grad_(True)
    optimiser = torch.optim.Adam([image], lr=0.05)
    for _ in range(MATCHING_STEPS):
        loss = cross_entropy(module(image[None]), label)
        own = torch.cat([item.reshape(-1) for item in torch.autograd.grad(loss, weights, create_graph=True)])
        (image.grad,) = torch.autograd.grad(1.0 - cosine_similarity(own, wanted, dim=0), image)
        optimiser.step()
    return image.detach()


def likeness(guesses: Sequence[Tensor], images: Tensor) -> float:
    """The largest correlation between any guess and any image that was there."""
    return max(abs(_correlation(guess, image)) for guess in guesses for image in images)


def _correlation(one: Tensor, other: Tensor) -> float:
    a, b = one.flatten() - one.mean(), other.flatten() - other.mean()
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-12))


def inversion(images: ImageSet, target: str, seed: int) -> float:
    """Likeness of the best guess to the one image of some device in the sum; "guess" knows the classes' means."""
    module = _model(images)
    victims = Victims.drawn(images, 1, seed)
    if target == "guess":
        means = [images.test[images.test_labels == label].mean(dim=0) for label in range(10)]
        return likeness(means, images.train[victims.shares[0]])
    what = seen(module, victims, target, seed)
    guesses = inverted(module, what, images.train.shape[1:], seed)
    return likeness(guesses, images.train[victims.shares[: what.devices].ravel()])


# --- labels and membership --------------------------------------------------------------------------------------------


def label(images: ImageSet, target: str, seed: int) -> float:
    """Whether the victim's class is the one named."""
    module, victims = _model(images), Victims.drawn(images, 1, seed)
    truth = int(images.train_labels[victims.shares[0, 0]])
    if target == "guess":
        return float(truth == int(np.random.default_rng([seed, 12]).integers(10)))
    what = seen(module, victims, target, seed)
    return float(int(what.change[-10:].argmax()) == truth)


EXAMPLES = 8
"""Images of a device whose membership is asked for."""


def membership(images: ImageSet, target: str, seed: int) -> float:
    """Area under the curve: how often the victim's examples look more like members than other images."""
    module, victims = _model(images), Victims.drawn(images, EXAMPLES, seed)
    if target == "guess":
        return 0.5
    what = seen(module, victims, target, seed)
    others = np.random.default_rng([seed, 13]).permutation(len(images.test))[:EXAMPLES]
    inside = [_along(module, what, images.train[k], images.train_labels[k]) for k in victims.shares[0].tolist()]
    outside = [_along(module, what, images.test[k], images.test_labels[k]) for k in others.tolist()]
    return float(np.mean([(a > b) + 0.5 * (a == b) for a in inside for b in outside]))


def _along(module: nn.Module, what: Seen, image: Tensor, answer: Tensor) -> float:
    """Cosine of what was seen and the example's own slope."""
    loss = cross_entropy(module(image[None]), answer[None])
    own = torch.cat([item.reshape(-1) for item in torch.autograd.grad(loss, list(module.parameters()))])
    return float(cosine_similarity(own, what.slope, dim=0))


def _model(images: ImageSet) -> nn.Sequential:
    """A model that knows nothing yet, as attackers like it."""
    return small_mlp(images.train[0].numel())


ATTACKS: dict[str, Callable[[ImageSet, str, int], float]] = {
    "inversion": inversion,
    "label": label,
    "membership": membership,
}
