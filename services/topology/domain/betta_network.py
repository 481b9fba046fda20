"""Inputs of the mesh planner: trusted pairs, times of links and batches, and the rules.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §III: the social network G_s
and the physical network G_p.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.kit.errors import InvalidInput
from services.topology.domain.mixing import Bools, Floats, components, name_parts

Transfers = Literal["parallel", "shared"]

SYMMETRY_TOLERANCE = 1e-9
LARGEST_COUNT = 2**40


class BadMeshInput(InvalidInput):
    """A time, a count or a rule the planner cannot work with."""


class UnknownMeshDevice(InvalidInput):
    """A link names a device that is not in the mesh, or joins a device to itself."""


class DisconnectedSocialGraph(InvalidInput):
    """Trust does not connect all devices, so no topology could be built from trusted links alone."""


@dataclass(frozen=True, slots=True)
class MeshRules:
    """How to plan.

    Attributes
    ----------
    epsilon : privacy budget ε > 0 per round of a device that adds noise.
    basic_batch : B0 ≥ 1, the batch size `batch_seconds` was measured with.
    max_degree : links per device beyond which no link is added after the spanning tree; None for no cap.
    transfers : `parallel`, a device talks to all neighbours at once (10), or `shared`, it pays for each in turn.
    most_seconds : beyond which no batch is enlarged, however slow the slowest is or says it is; None for no bound.
    """

    epsilon: float = 1.0
    basic_batch: int = 32
    max_degree: int | None = None
    transfers: Transfers = "parallel"
    most_seconds: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite(self.epsilon) and self.epsilon > 0):
            raise BadMeshInput(f"epsilon is {self.epsilon}; a privacy budget is a finite number above 0")
        if not 1 <= self.basic_batch <= LARGEST_COUNT:
            raise BadMeshInput(f"basic_batch is {self.basic_batch}; a batch holds 1 to {LARGEST_COUNT} samples")
        if self.max_degree is not None and self.max_degree < 1:
            raise BadMeshInput(f"max_degree is {self.max_degree}; give at least 1, or none for no cap")
        if self.transfers not in ("parallel", "shared"):
            raise BadMeshInput(f"transfers is {self.transfers!r}; choose parallel or shared")


@dataclass(frozen=True, slots=True, eq=False)
class MeshNetwork:
    """A validated social and physical network of V devices.

    Attributes
    ----------
    trusted : (V, V) symmetric booleans, the social graph S.
    link_seconds : (V, V) symmetric seconds d_ij of one transfer, ∞ where impossible, 0 on the diagonal.
    batch_seconds : (V,) seconds r_i > 0 of one basic batch.
    samples : (V,) samples a device can draw a batch from, or None for no limit.
    """

    trusted: Bools
    link_seconds: Floats
    batch_seconds: Floats
    samples: NDArray[np.int64] | None = None

    @classmethod
    def build(
        cls,
        devices: int,
        trusted: Iterable[Sequence[int]],
        link_seconds: ArrayLike,
        batch_seconds: ArrayLike,
        samples: Sequence[int] | None = None,
    ) -> MeshNetwork:
        """Checks everything a person can get wrong; raises with the value received."""
        if devices < 1:
            raise BadMeshInput(f"devices is {devices}; a mesh has at least one device")
        seconds = _link_seconds(link_seconds, devices)
        batches = np.asarray(batch_seconds, dtype=np.float64)
        if batches.shape != (devices,):
            raise BadMeshInput(f"batch_seconds has shape {batches.shape}; give one number for each of {devices}")
        usable = np.isfinite(batches) & (batches > 0)
        if not usable.all():
            worst = int(np.argmin(usable))
            raise BadMeshInput(f"batch_seconds of device {worst} is {batches[worst]}; give finite seconds above 0")
        counts = None if samples is None else _sample_counts(samples, devices)
        return cls(pairs_to_adjacency(devices, trusted), seconds, batches, counts)

    @property
    def devices(self) -> int:
        """V."""
        return len(self.batch_seconds)

    @property
    def link_times(self) -> Floats:
        """T_ij = d_ij + max(r_i, r_j), what one link adds to a round ([BETTA] under (10))."""
        return self.link_seconds + np.maximum.outer(self.batch_seconds, self.batch_seconds)

    def require_connected(self) -> None:
        """Raise unless trusted, possible links connect all devices; the message names links that would."""
        usable = self.trusted & np.isfinite(self.link_seconds)
        parts = components(usable)
        if len(parts) == 1:
            return
        bridges = [_cheapest_bridge(self.link_seconds, parts[0], part) for part in parts[1:]]
        advice = ", ".join(f"{i}–{j}" for i, j in bridges[:6]) + (", …" if len(bridges) > 6 else "")
        impossible = (
            " (trusted pairs with infinite link_seconds do not count)" if (self.trusted & ~usable).any() else ""
        )
        raise DisconnectedSocialGraph(
            f"trust leaves {len(parts)} parts, {name_parts(parts)}{impossible}; trust along {advice} would connect them"
        )


def pairs_to_adjacency(devices: int, pairs: Iterable[Sequence[int]]) -> Bools:
    """The symmetric boolean matrix of `pairs`; a pair named twice counts once."""
    adjacency = np.zeros((devices, devices), dtype=bool)
    for pair in pairs:
        if len(pair) != 2:
            raise UnknownMeshDevice(f"{list(pair)} is not a pair of devices; write [i, j]")
        i, j = int(pair[0]), int(pair[1])
        if not (0 <= i < devices and 0 <= j < devices):
            raise UnknownMeshDevice(f"link [{i}, {j}] names an unknown device; devices are 0 to {devices - 1}")
        if i == j:
            raise UnknownMeshDevice(f"link [{i}, {j}] joins a device to itself; leave it out")
        adjacency[i, j] = adjacency[j, i] = True
    return adjacency


def _link_seconds(link_seconds: ArrayLike, devices: int) -> Floats:
    try:
        seconds = np.array(link_seconds, dtype=np.float64)
    except ValueError as error:
        raise BadMeshInput(f"link_seconds is ragged; give {devices} rows of {devices} numbers") from error
    if seconds.shape != (devices, devices):
        raise BadMeshInput(f"link_seconds has shape {seconds.shape}; give {devices} rows of {devices} numbers")
    np.fill_diagonal(seconds, 0.0)
    missing, negative = np.isnan(seconds), seconds < 0
    if missing.any() or negative.any():
        i, j = np.argwhere(missing | negative)[0]
        kind = "missing" if missing[i, j] else f"negative ({seconds[i, j]})"
        raise BadMeshInput(f'link_seconds of {i}–{j} is {kind}; give seconds of at least 0, or "inf" if impossible')
    skewed = ~np.isclose(seconds, seconds.T, rtol=SYMMETRY_TOLERANCE, atol=0.0)
    if skewed.any():
        i, j = np.argwhere(skewed)[0]
        raise BadMeshInput(
            f"link_seconds is asymmetric: {i}→{j} takes {seconds[i, j]}, {j}→{i} takes {seconds[j, i]}; "
            "give the slower direction for both"
        )
    return np.maximum(seconds, seconds.T)


def _sample_counts(samples: Sequence[int], devices: int) -> NDArray[np.int64]:
    if len(samples) != devices or not all(1 <= count <= LARGEST_COUNT for count in samples):
        raise BadMeshInput(
            f"samples is {list(samples)[:8]}; give one count from 1 to {LARGEST_COUNT} for each of {devices} devices"
        )
    return np.asarray(samples, dtype=np.int64)


def _cheapest_bridge(seconds: Floats, left: list[int], right: list[int]) -> tuple[int, int]:
    block = seconds[np.ix_(left, right)]
    row, column = np.unravel_index(int(np.argmin(block)), block.shape)
    return left[int(row)], right[int(column)]
