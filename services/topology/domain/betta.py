"""What a communication topology costs and how large each device's batch may be: BeTTa's objective and last step.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, (10), (13), (16) and (17).

The planner itself exists twice: `betta_reference.plan_mesh_reference`, the five steps read aloud, and
`betta_fast.plan_mesh`, which returns the same plan sooner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from services.topology.domain.betta_network import BadMeshInput, MeshNetwork, MeshRules, Transfers, pairs_to_adjacency
from services.topology.domain.mixing import (
    Bools,
    Floats,
    NotConnected,
    components,
    hitting_times_closed_form,
    lazy_metropolis,
    name_parts,
    spectral_gap,
)

REL = 1e-9
"""Scores and pseudo times closer than this, relatively, are equal; ties are frequent and must not hang on rounding."""

LARGEST_BATCH = 2.0**40
"""Where a device is so fast that the formula asks for more samples than anybody holds."""

Step = Literal["CAS", "SCS", "NAS", "complete", "given"]


@dataclass(frozen=True, slots=True)
class PlannedLink:
    """One link and why it is there.

    Attributes
    ----------
    first, second : the devices, first < second.
    step : the step that added it; `complete` when the planner proved that adding every remaining pair is best.
    score : SSS (14) or NSS (15) at that moment, T_ij for CAS; None where no score was needed.
    trusted : whether the two may exchange raw parameters.
    """

    first: int
    second: int
    step: Step
    score: float | None
    trusted: bool


@dataclass(frozen=True, slots=True, eq=False)
class TopologyFigures:
    """The quantities of §4: mixing matrix A, hitting times m and H, gap δ, local iterate L, pseudo training time P."""

    mixing: Floats
    hitting_times: Floats
    hitting_time: float
    spectral_gap: float
    local_iterate: float
    pseudo_training_time: float
    dp_devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MeshPlan:
    """A communication topology ready to train on.

    Attributes
    ----------
    links : in the order they were added, each with its reason.
    dp_budget : the winning n, how many devices were allowed to add noise.
    batch_sizes : (V,) samples per round, chosen so that no device prolongs the round.
    figures : everything (13) is made of.
    snapshots : how many topologies were weighed.
    """

    links: tuple[PlannedLink, ...]
    dp_budget: int
    batch_sizes: NDArray[np.int64]
    figures: TopologyFigures
    snapshots: int

    @property
    def dp_devices(self) -> tuple[int, ...]:
        """The devices that must add noise: endpoints of untrusted links."""
        return self.figures.dp_devices

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The links alone, sorted."""
        return tuple(sorted((link.first, link.second) for link in self.links))


def local_iterate(network: MeshNetwork, adjacency: Bools, transfers: Transfers = "parallel") -> float:
    """L, the seconds of one round.

    [BETTA] (10) for `parallel`: the largest d_ij + max(r_i, r_j) over links. Unlike [BETTA], `shared` lets every
    transfer of a device wait for the one before: max_i (r_i + Σ_{j in N(i)} d_ij). One device alone: r_0.
    """
    if not adjacency.any():
        return float(network.batch_seconds.max())
    if transfers == "shared":
        return float((network.batch_seconds + _transfer_seconds(network, adjacency, transfers)).max())
    return float(network.link_times[adjacency].max())


def pseudo_training_time(
    hitting_time: float, local_iterate: float, gap: float, dp_share: float, epsilon: float
) -> float:
    """P = H·L·(1 + (φ/(ε δ))²), the planner's objective ([BETTA] (13)); φ is the actual share of noisy devices."""
    if dp_share == 0.0:
        return hitting_time * local_iterate
    noise = float(dp_share) / float(epsilon * gap) if epsilon * gap > 0.0 else math.inf
    return float(hitting_time) * float(local_iterate) * (1.0 + noise * noise)


def dp_devices(network: MeshNetwork, adjacency: Bools) -> tuple[int, ...]:
    """Every endpoint of a link that is not trusted."""
    return tuple(np.flatnonzero((adjacency & ~network.trusted).any(axis=1)).tolist())


def figures(network: MeshNetwork, rules: MeshRules, adjacency: Bools) -> TopologyFigures:
    """Evaluates one connected topology from scratch; O(V³)."""
    if not np.isfinite(network.link_seconds[adjacency]).all():
        i, j = np.argwhere(adjacency & ~np.isfinite(network.link_seconds))[0]
        raise BadMeshInput(f"link [{i}, {j}] is impossible: its link_seconds is infinite; leave it out")
    parts = components(adjacency)
    if len(parts) > 1:
        raise NotConnected(f"the links leave {len(parts)} parts, {name_parts(parts)}; add links between them")
    mixing = lazy_metropolis(adjacency)
    times = hitting_times_closed_form(mixing)
    noisy = dp_devices(network, adjacency)
    hitting, gap = float(times.max()), spectral_gap(mixing)
    iterate = local_iterate(network, adjacency, rules.transfers)
    pseudo = pseudo_training_time(hitting, iterate, gap, len(noisy) / network.devices, rules.epsilon)
    return TopologyFigures(
        mixing=mixing,
        hitting_times=times,
        hitting_time=hitting,
        spectral_gap=gap,
        local_iterate=iterate,
        pseudo_training_time=pseudo,
        dp_devices=noisy,
    )


def batch_sizes(network: MeshNetwork, rules: MeshRules, adjacency: Bools, *, tight: bool = False) -> NDArray[np.int64]:
    """MEP: the largest batch each device can compute without prolonging the round.

    [BETTA] (16)–(17): B_k = ⌊(L − max_{l in N(k)} d_kl)/b_k⌋ with b_k = r_k/B0, never below B0; the two ends of the
    slowest link keep B0. Unlike [BETTA], the slowest link is the lexicographically first of those with T = L, 1e-9 of
    a sample is forgiven before rounding down, and batches are capped by the samples available and by the rules' most
    seconds of computing. With `shared` transfers the maximum is a sum, and the slowest device keeps B0 by the formula
    itself.

    Parameters
    ----------
    tight : also expand the faster end of the slowest link.
    """
    iterate = local_iterate(network, adjacency, rules.transfers)
    per_sample = network.batch_seconds / rules.basic_batch
    most = np.inf if rules.most_seconds is None else rules.most_seconds
    room = np.minimum(iterate - _transfer_seconds(network, adjacency, rules.transfers), most) / per_sample
    sizes = np.maximum(np.floor(np.minimum(room, LARGEST_BATCH) + 1e-9).astype(np.int64), rules.basic_batch)
    if rules.transfers == "parallel" and not tight and adjacency.any():
        slowest = np.argwhere(np.triu(adjacency & (network.link_times >= iterate)))[0]
        sizes[slowest] = rules.basic_batch
    return sizes if network.samples is None else np.minimum(sizes, network.samples)


def evaluate_links(network: MeshNetwork, rules: MeshRules, links: Iterable[Sequence[int]]) -> MeshPlan:
    """A plan of the links given, evaluated as BeTTa would; the social graph need not be connected."""
    adjacency = pairs_to_adjacency(network.devices, links)
    facts = figures(network, rules, adjacency)
    given = tuple(
        PlannedLink(int(i), int(j), "given", None, bool(network.trusted[i, j]))
        for i, j in np.argwhere(np.triu(adjacency))
    )
    return MeshPlan(given, len(facts.dp_devices), batch_sizes(network, rules, adjacency), facts, snapshots=1)


def finish_plan(
    network: MeshNetwork, rules: MeshRules, links: tuple[PlannedLink, ...], dp_budget: int, snapshots: int
) -> MeshPlan:
    """CSS's winner with its figures and MEP's batches."""
    adjacency = pairs_to_adjacency(network.devices, [(link.first, link.second) for link in links])
    facts = figures(network, rules, adjacency)
    return MeshPlan(links, dp_budget, batch_sizes(network, rules, adjacency), facts, snapshots)


def _transfer_seconds(network: MeshNetwork, adjacency: Bools, transfers: Transfers) -> Floats:
    """Seconds each device spends exchanging: the slowest neighbour, or all of them one after another."""
    seconds = np.where(adjacency, network.link_seconds, 0.0)
    return np.asarray(seconds.sum(axis=1) if transfers == "shared" else seconds.max(axis=1), dtype=np.float64)
