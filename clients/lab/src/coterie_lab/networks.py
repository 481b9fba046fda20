"""Mesh networks sampled from published data: a city's devices and relations, or Gowalla's people and friendships.

[BETTA] Efficient Online Decentralized Learning Framework for Social Internet of Things, §IV, whose text names both
Santander and Gowalla. A network is a connected breadth-first sample. Places are real: a device's own, where its carrier
rested longest, or a person's most frequent check-in. Wi-Fi reaches 100 m, LoRa reaches all devices, and boards are
drawn as for generated networks. An error about a missing file names its source.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coterie_lab.datasets.gowalla import read_friends, read_places
from coterie_lab.datasets.sampling import connected_sample
from coterie_lab.datasets.santander import read_city
from coterie_lab.mesh import BOARD_SHARES, BOARDS_SECONDS, LORA_SECONDS, WIFI_METRES, WIFI_SECONDS, contenders
from services.topology.domain.betta import evaluate_links
from services.topology.domain.betta_fast import plan_mesh
from services.topology.domain.betta_network import MeshNetwork, MeshRules
from services.topology.domain.plain_links import social_links
from services.trust.domain import relations
from services.trust.domain.population import Population, Stays, usual_places

Ties = Sequence[tuple[int, int]]
Places = dict[int, tuple[float, float]]
KINDS = ("santander", "gowalla")
ARCHIVE = "santander_siot.tar.gz"


def city_graph(population: Population, stays: Stays) -> tuple[list[tuple[int, int]], Places]:
    """Ties of a city by ownership of people, co-location and meetings, and where each device is usually found.

    Public devices of one owner and devices of one make are left out: a municipality's thousands know each other, which
    would make every sample of it complete.
    """
    private = [block for block in relations.ownership(population) if "metres" not in block.facts]
    derived = (relations.co_location, relations.social, relations.social_public)
    blocks = [*private, *(block for derive in derived for block in derive(population, stays))]
    places = usual_places(population, stays)
    known = {
        int(device): (float(x), float(y))
        for device, (x, y) in zip(population.devices, places, strict=True)
        if not np.isnan(x)
    }
    ties = {(int(a), int(b)) for block in blocks for a, b in zip(block.a, block.b, strict=True)}
    return sorted((a, b) for a, b in ties if a in known and b in known), known


def gowalla_graph(folder: Path) -> tuple[list[tuple[int, int]], Places]:
    """Friendships of people who checked in anywhere, and where they did most often."""
    places = read_places(folder)
    return [(a, b) for a, b in read_friends(folder) if a in places and b in places], places


def graph_of(kind: str, folder: Path) -> tuple[list[tuple[int, int]], Places]:
    """The ties and places of a published data set in a folder."""
    if kind == "gowalla":
        return gowalla_graph(folder)
    archive = folder / ARCHIVE
    return city_graph(*read_city(archive if archive.is_file() else folder))


@cache
def city_of(folder: Path) -> tuple[list[tuple[int, int]], Places]:
    """Santander's ties and places, read once in a process."""
    return graph_of("santander", folder)


def sampled_network(ties: Ties, places: Places, count: int, seed: int) -> MeshNetwork:
    """A connected sample of a social graph as a mesh network."""
    rng = np.random.default_rng([seed, count])
    chosen = connected_sample(ties, count, rng)
    number = {node: k for k, node in enumerate(chosen)}
    trusted = [(number[a], number[b]) for a, b in ties if a in number and b in number]
    spots = np.array([places[node] for node in chosen])
    metres: NDArray[np.float64] = np.hypot(*(spots[:, None] - spots[None]).transpose(2, 0, 1))
    seconds = np.where(metres < WIFI_METRES, WIFI_SECONDS, LORA_SECONDS)
    boards = rng.choice(BOARDS_SECONDS, count, p=BOARD_SHARES)
    return MeshNetwork.build(count, trusted, seconds, boards)


def figures_of(network: MeshNetwork) -> dict[str, float]:
    """Figures of BeTTa's plan and of the social graph: links, noisy devices, seconds of a round, pseudo time."""
    rules = MeshRules()
    plan, social = plan_mesh(network, rules), evaluate_links(network, rules, social_links(network))
    rounds = {contender.name: contender.round_seconds for contender in contenders(network, "parallel")}
    return {
        "social links": float(network.trusted.sum()) / 2,
        "plan's links": float(len(plan.links)),
        "noisy devices": float(len(plan.dp_devices)),
        "round, s": plan.figures.local_iterate,
        "DABMD-like round, s": rounds["DABMD-like"],
        "pseudo time, s": plan.figures.pseudo_training_time,
        "social graph's, s": social.figures.pseudo_training_time,
    }
