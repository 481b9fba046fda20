"""[SCFL] numbers worked by hand or published, and the instances on which its theorems fail (spec §2, §8, §11)."""

from __future__ import annotations

import numpy as np
import pytest

from services.topology.domain.coalition import Game, GameParameters, evaluate, singletons
from services.topology.domain.formation import Method, form
from services.topology.domain.formation_search import partitions
from services.topology.domain.quality import QualityModel
from services.topology.domain.stability import blocking_move
from services.trust.domain.graph import TrustGraph


def triangle(e01: float, e02: float, e12: float, gamma: tuple[float, float, float]) -> Game:
    return Game(
        TrustGraph.from_ties(3, [0, 0, 1], [1, 2, 2], [e01, e02, e12]),
        gamma,
        game_parameters=GameParameters(head_reward=2.0),
    )


def test_quality_without_noise_and_at_the_largest_noise() -> None:
    model = QualityModel()
    assert float(model.quality(0.0, 1.0)) == pytest.approx(96.83, abs=5e-3)
    assert float(model.quality(0.6, 1.0)) == pytest.approx(62.25, abs=5e-3)
    assert 0.52 * float(model.quality(0.0, 1.0)) == pytest.approx(50.35, abs=5e-3)


def test_noise_reaches_its_maximum_at_a_trust_of_0_09687() -> None:
    model = QualityModel()
    below, above = model.noise(np.array([0.09686, 0.09688]))
    assert below == 0.6
    assert 0.5995 < above < 0.6


def test_the_exact_calibration_costs_0_65_points_just_below_the_threshold() -> None:
    paper, exact = QualityModel(), QualityModel(calibration="exact")
    trust = np.array([0.6999])
    assert float(paper.noise(trust)[0]) == pytest.approx(0.1287, abs=5e-5)
    assert float(exact.noise(trust)[0]) == pytest.approx(0.1798, abs=5e-5)
    loss = paper.quality(paper.noise(trust), 1.0) - exact.quality(exact.noise(trust), 1.0)
    assert float(loss[0]) == pytest.approx(0.65, abs=6e-3)


def test_clique_of_four_pays_same_in_every_cluster_so_core_is_not_empty() -> None:
    """Spec A20: unlike Theorem 2, equal split is in the core."""
    game = Game(TrustGraph.from_dense(np.full((4, 4), 0.9)), 1.0)
    assert evaluate(game, [0]).value == pytest.approx(32.36864570571, abs=1e-11)
    for size in (2, 3, 4):
        assert evaluate(game, range(size)).value / size == pytest.approx(49.15085508930, abs=1e-11)
    stable = {partition for partition in partitions(4) if (blocking_move(game, partition) is None)}
    assert stable == {((0, 1, 2, 3),), ((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))}


@pytest.mark.parametrize("method", ["rounds", "sweep"])
def test_visited_histories_end_the_cycle_that_leaver_histories_do_not(method: Method) -> None:
    """Spec A13: {01}{2} → {0}{12} → {02}{1} → … with leaver-only histories; the only stable partition is {012}."""
    game = triangle(0.99, 0.55, 0.4, (1.67, 1.28, 15.21))
    assert [partition for partition in partitions(3) if (blocking_move(game, partition) is None)] == [((0, 1, 2),)]
    formation = form(game, singletons(3), method)
    assert formation.partition == ((0, 1, 2),)
    assert formation.stable
    assert formation.converged


def test_the_cycle_is_walked_once_before_it_is_left() -> None:
    transfers = form(triangle(0.99, 0.55, 0.4, (1.67, 1.28, 15.21)), singletons(3), "rounds").transfers
    assert [(move.device, move.target) for move in transfers] == [(0, (1,)), (1, (2,)), (2, (0,)), (1, (0, 2))]


@pytest.mark.parametrize("method", ["rounds", "sweep"])
def test_the_plain_algorithm_ends_unstable_and_says_so(method: Method) -> None:
    """Spec A16: Theorem 3 is false. User 2 gains .50348 by joining {0}, which its history forbids."""
    game = triangle(0.67, 0.57, 0.39, (1.95, 9.98, 13.21))
    plain = form(game, ((0, 2), (1,)), method, restarts=0, search=False)
    assert plain.partition == ((0,), (1, 2))
    assert plain.converged
    assert not plain.stable
    assert plain.blocking is not None
    assert (plain.blocking.device, plain.blocking.target) == (2, (0,))
    assert plain.blocking.gain == pytest.approx(0.50348, abs=5e-6)


@pytest.mark.parametrize("method", ["rounds", "sweep"])
def test_restarts_repair_that_end(method: Method) -> None:
    game = triangle(0.67, 0.57, 0.39, (1.95, 9.98, 13.21))
    repaired = form(game, ((0, 2), (1,)), method)
    assert repaired.stable
    assert repaired.restarts == 1
    assert blocking_move(game, repaired.partition) is None
