"""Topologies to compare a planned mesh with: the social graph itself, a ring, a random regular expander, everything.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §IV-A and §IV-B.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from services.topology.domain.betta import MeshPlan, evaluate_links, pseudo_training_time
from services.topology.domain.betta_network import BadMeshInput, MeshNetwork, MeshRules
from services.topology.domain.mixing import Bools

Links = list[tuple[int, int]]
Rival = Literal["social", "ring", "expander", "complete", "dabmd", "pdoo"]
RIVALS: tuple[Rival, ...] = get_args(Rival)
ON_SOCIAL: tuple[Rival, ...] = ("social", "dabmd", "pdoo")
"""Rivals that use every trusted link and need trust to connect everybody."""
EXPANDER_DEGREE = 4


def social_links(network: MeshNetwork) -> Links:
    """Every trusted, possible link: what DABMD and PDOO train on."""
    usable = network.trusted & np.isfinite(network.link_seconds)
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(usable))]


def ring_links(devices: int) -> Links:
    """0–1–…–0; one link for two devices, none for one."""
    return sorted({(min(i, j), max(i, j)) for i in range(devices) if (j := (i + 1) % devices) != i})


def complete_links(devices: int) -> Links:
    """Every pair."""
    return [(i, j) for i in range(devices) for j in range(i + 1, devices)]


def expander_links(devices: int, degree: int, rng: np.random.Generator) -> Links:
    """A connected random regular graph, an expander with high probability; the complete graph where it is too small."""
    if degree < 2 or (degree * devices) % 2:
        raise BadMeshInput(f"no {degree}-regular expander on {devices} devices; the degree is at least 2, times V even")
    if devices <= degree + 1:
        return complete_links(devices)
    import networkx as nx  # which no other plan needs

    while True:
        graph = nx.random_regular_graph(degree, devices, seed=int(rng.integers(2**31)))
        if nx.is_connected(graph):
            return sorted((min(i, j), max(i, j)) for i, j in graph.edges)


def baseline_plans(
    network: MeshNetwork, rules: MeshRules, rng: np.random.Generator, *, expander_degree: int = EXPANDER_DEGREE
) -> dict[str, MeshPlan]:
    """Each baseline evaluated as BeTTa evaluates its own topologies; the social graph needs no noisy device."""
    links = {
        "social": social_links(network),
        "ring": ring_links(network.devices),
        "expander": expander_links(network.devices, expander_degree, rng),
        "complete": complete_links(network.devices),
    }
    return {name: evaluate_links(network, rules, pairs) for name, pairs in links.items()}


def rival_plan(
    network: MeshNetwork, rules: MeshRules, name: Rival, bridges: Links, rng: np.random.Generator
) -> MeshPlan:
    """A rival of BeTTa ready to train on; `bridges` join the parts of the social graph where trust does not.

    `social`, `ring`, `expander` and `complete` get MEP's batches, and noise at the ends of untrusted links. DABMD-like:
    the social graph, and every device computes for as long as the slowest board needs for a basic batch. PDOO-like: the
    social graph, basic batches, everybody noised, trusted or not. Both are like those methods, not those papers' code.
    """
    match name:
        case "ring":
            links = ring_links(network.devices)
        case "complete":
            links = complete_links(network.devices)
        case "expander":
            links = expander_links(network.devices, EXPANDER_DEGREE, rng)
        case _:
            links = sorted({*social_links(network), *bridges})
    plan = evaluate_links(network, rules, links)
    if name == "dabmd":
        return _with_batches(network, rules, plan, even_batches(network, rules), plan.dp_devices)
    if name == "pdoo":
        basic = np.full(network.devices, rules.basic_batch, dtype=np.int64)
        return _with_batches(network, rules, plan, basic, tuple(range(network.devices)))
    return plan


def even_batches(network: MeshNetwork, rules: MeshRules) -> NDArray[np.int64]:
    """What every device gets through while the slowest board computes a basic batch, or in the rules' most seconds."""
    most = np.inf if rules.most_seconds is None else rules.most_seconds
    pace = np.maximum(1.0, min(network.batch_seconds.max(), most) / network.batch_seconds)
    return np.asarray(np.floor(rules.basic_batch * pace + 1e-9), dtype=np.int64)


def round_seconds(network: MeshNetwork, adjacency: Bools, batches: NDArray[np.int64], rules: MeshRules) -> float:
    """A round's seconds with the batches given; the compute of a lone device."""
    compute = network.batch_seconds * batches / rules.basic_batch
    if not adjacency.any():
        return float(compute.max())
    if rules.transfers == "shared":
        return float((compute + np.where(adjacency, network.link_seconds, 0.0).sum(axis=1)).max())
    return float((network.link_seconds + np.maximum.outer(compute, compute))[adjacency].max())


def _with_batches(
    network: MeshNetwork, rules: MeshRules, plan: MeshPlan, batches: NDArray[np.int64], noisy: tuple[int, ...]
) -> MeshPlan:
    """The same links with other batches and noise, and the figures that follow from them."""
    held = batches if network.samples is None else np.minimum(batches, network.samples)
    figures = plan.figures
    adjacency = figures.mixing > 0
    np.fill_diagonal(adjacency, False)
    seconds = round_seconds(network, adjacency, held, rules)
    share = len(noisy) / network.devices
    pseudo = pseudo_training_time(figures.hitting_time, seconds, figures.spectral_gap, share, rules.epsilon)
    facts = dataclasses.replace(figures, local_iterate=seconds, pseudo_training_time=pseudo, dp_devices=noisy)
    return dataclasses.replace(plan, batch_sizes=held, figures=facts, dp_budget=len(noisy))
