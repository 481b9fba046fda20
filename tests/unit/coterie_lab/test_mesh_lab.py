"""The mesh experiments' own arithmetic: the simulated clock, the contenders and what their models lose."""

import numpy as np
import pytest

from coterie.learning.mixing import MeshState
from coterie_lab.betta_baselines import round_seconds
from coterie_lab.mesh import GRAPHS, contenders, mean_loss, radio_network, rounds_to_targets
from coterie_lab.mesh_data import Images
from services.topology.domain.betta_network import MeshNetwork, MeshRules, Transfers, pairs_to_adjacency
from services.topology.domain.mixing import components

pytestmark = pytest.mark.usefixtures("compiled_planners")


@pytest.mark.parametrize("kind", GRAPHS)
def test_networks_are_connected_seeded_and_made_of_two_radios(kind: str) -> None:
    network, again = radio_network(kind, 16, 3), radio_network(kind, 16, 3)
    assert len(components(network.trusted)) == 1
    assert np.array_equal(network.trusted, again.trusted)
    assert set(np.unique(network.link_seconds[~np.eye(16, dtype=bool)])) <= {0.004654, 8.96}


def test_the_clock_adds_compute_and_transfers_by_hand() -> None:
    """0–1 (3 s), 1–2 (4 s), batches 64, 32, 32 of 32 at 5, 1, 1 s. Parallel: 3 + 10. Shared: device 0, 10 + 3."""
    seconds = [[0, 3, 9], [3, 0, 4], [9, 4, 0]]
    network = MeshNetwork.build(3, [(0, 1), (1, 2)], seconds, [5, 1, 1])
    adjacency = pairs_to_adjacency(3, [(0, 1), (1, 2)])
    assert round_seconds(network, adjacency, np.array([64, 32, 32]), MeshRules()) == 13.0
    assert round_seconds(network, adjacency, np.array([32, 32, 32]), MeshRules(transfers="shared")) == 8.0
    assert round_seconds(network, adjacency, np.array([64, 32, 32]), MeshRules(transfers="shared")) == 13.0


@pytest.mark.parametrize("clock", ["parallel", "shared"])
def test_contenders_keep_their_promises(clock: Transfers) -> None:
    """Plans finish within their round time; DABMD-like has no noise, PDOO-like the noise of all."""
    network = radio_network("hubs", 16, 0)
    by_name = {contender.name: contender for contender in contenders(network, clock)}
    for name in ("BeTTa", "BeTTa capped"):
        contender = by_name[name]
        adjacency = contender.mixing > 0
        np.fill_diagonal(adjacency, False)
        clocked = round_seconds(network, adjacency, contender.batches, MeshRules(transfers=clock))
        assert clocked == pytest.approx(contender.round_seconds)
    assert (by_name["DABMD-like"].noisy, len(by_name["PDOO-like"].noisy)) == (frozenset(), 16)
    assert by_name["DABMD-like"].batches.max() > 32
    assert (by_name["PDOO-like"].batches == 32).all()


def test_training_on_easy_images_reaches_every_target_in_order() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 6000)
    pixels = np.eye(10)[labels] * 10 + rng.normal(size=(6000, 10)) * 0.1
    images = Images("synthetic", pixels[:5000], labels[:5000], pixels[5000:], labels[5000:])
    contender = contenders(radio_network("hubs", 16, 0), "parallel")[0]
    reached = rounds_to_targets(contender, images, 0)
    assert sorted(reached) == [0.65, 0.70, 0.75, 0.80]
    assert list(reached.values()) == sorted(reached.values())
    assert reached == rounds_to_targets(contender, images, 0)


def test_the_loss_of_an_untrained_model_is_that_of_guessing() -> None:
    images = Images("synthetic", np.zeros((4, 3)), np.zeros(4, dtype=int), np.eye(3), np.array([0, 1, 2]), classes=5)
    states = [MeshState.start(np.zeros(15)), MeshState.start(np.zeros(15))]
    assert mean_loss(states, images) == pytest.approx(np.log(5))
