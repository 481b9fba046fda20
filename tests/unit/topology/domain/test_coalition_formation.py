"""Invariants of the cluster game, baselines against brute force, and the search for stable partitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie_lab import formation_baselines as baselines
from services.topology.domain.coalition import (
    Game,
    GameParameters,
    InvalidGame,
    InvalidPartition,
    evaluate,
    partition_of,
    preference,
    singletons,
)
from services.topology.domain.formation import InvalidMethod, form
from services.topology.domain.formation_search import partitions
from services.topology.domain.quality import InvalidQualityModel, Measurement, QualityModel, refit
from services.topology.domain.stability import blocking_move
from services.trust.domain.graph import TrustGraph

QUICK = settings(max_examples=40, deadline=None)


def random_game(seed: int, size: int, *, reward: float | None = None) -> Game:
    random = np.random.default_rng(seed)
    weights = np.round(random.uniform(0, 1, (size, size)), 2) * (random.random((size, size)) < random.choice([0.5, 1]))
    upper = np.triu(weights, 1)
    zeta = float(random.choice([0.0, 2.0, 5.0])) if reward is None else reward
    gamma = np.round(random.uniform(0.05, 20, size), 2)
    return Game(TrustGraph.from_dense(upper + upper.T), gamma, game_parameters=GameParameters(head_reward=zeta))


@QUICK
@given(seed=st.integers(0, 10**6), size=st.integers(2, 8))
def test_payoffs_sum_to_value_and_a_surplus_pays_each_at_least_solo(seed: int, size: int) -> None:
    """Σψ = V(C); extra share ≥ 0 ⇔ every payoff ≥ solo (without a head reward)."""
    game = random_game(seed, size, reward=0.0)
    coalition = evaluate(game, range(size))
    value = 0.52 * math.fsum(coalition.quality) - 1.2 * size
    assert math.fsum(coalition.payoff) == pytest.approx(value, abs=1e-10)
    solo = np.array([evaluate(game, [n]).value for n in range(size)])
    assert (value - math.fsum(solo) >= 0) == bool((coalition.payoff >= solo - 1e-12).all())


@QUICK
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6))
def test_results_are_feasible_rational_partitions_below_the_optimum(seed: int, size: int) -> None:
    game = random_game(seed, size)
    best, solo = baselines.optimum(game), baselines.non_cooperative(game).payoff
    for method in ("rounds", "sweep"):
        result = form(game, singletons(size), method)
        assert sorted(n for group in result.partition for n in group) == list(range(size))
        assert all(evaluate(game, group).feasible for group in result.partition)
        assert bool((result.payoff >= solo - 1e-9).all())
        assert result.payoff.sum() <= best.welfare + 1e-9 <= baselines.upper_bound(game) + 2e-9
        assert result.stable == (blocking_move(game, result.partition) is None)


@QUICK
@given(seed=st.integers(0, 10**6), size=st.integers(1, 6))
def test_the_optimum_is_the_best_of_all_partitions(seed: int, size: int) -> None:
    game = random_game(seed, size)
    feasible = [p for p in partitions(size) if all(evaluate(game, group).feasible for group in p)]
    totals = [math.fsum(evaluate(game, group).value for group in p) for p in feasible]
    assert baselines.optimum(game).welfare == pytest.approx(max(totals), abs=1e-9)
    local = baselines.local_search(game, singletons(size))
    assert math.fsum(baselines.non_cooperative(game).payoff) - 1e-9 <= local.welfare <= max(totals) + 1e-9


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_a_stable_partition_is_found_wherever_one_exists(first: int) -> None:
    """Where play and restarts end unstable, brute force over all partitions has the last word."""
    for seed in range(first, first + 100):
        game = random_game(seed, 3 + seed % 4)
        labels = np.random.default_rng(seed).integers(0, game.size, game.size)
        start = partition_of((np.flatnonzero(labels == k).tolist() for k in set(labels.tolist())), game.size)
        result = form(game, start, "rounds" if seed % 2 else "sweep")
        exists = result.stable or any((blocking_move(game, partition) is None) for partition in partitions(game.size))
        assert result.stable == exists


def test_formation_is_deterministic_and_yesterdays_stable_clusters_stay() -> None:
    game = random_game(5, 8)
    first, again = form(game, singletons(8)), form(game, singletons(8))
    assert first.transfers == again.transfers
    retained = form(game, first.partition)
    assert (retained.partition, retained.iterations, retained.transfers) == (first.partition, 0, ())


def test_strangers_leave_a_cluster_they_were_put_into() -> None:
    game = Game(TrustGraph.from_ties(3, [0], [1], [0.9]), 1.0)
    result = form(game, ((0, 1, 2),), "rounds")
    assert result.partition == ((0, 1), (2,))
    assert result.transfers[0].gain == math.inf


def test_two_strangers_profit_from_pairing_only_where_that_is_allowed() -> None:
    """Spec A8."""
    graph = TrustGraph.from_ties(2, [], [], [])
    assert form(Game(graph, 1.0), singletons(2)).partition == ((0,), (1,))
    assert form(Game(graph, 1.0, game_parameters=GameParameters(strangers="noise_max")), singletons(2)).partition == (
        (0, 1),
    )


def test_history_and_members_can_refuse_a_preference_but_never_solitude() -> None:
    game = Game(TrustGraph.from_dense(np.full((3, 3), 0.9)), 1.0)
    assert preference(game, 2, [0, 1]) == pytest.approx(49.1508550893)
    assert preference(game, 2, [0, 1], history=[frozenset({0, 1, 2})]) == -math.inf
    assert preference(game, 2, [], history=[frozenset({2})]) == pytest.approx(32.3686457057)
    weak = Game(TrustGraph.from_ties(3, [0, 0], [1, 2], [0.9, 0.1]), 1.0)
    assert preference(weak, 2, [0, 1]) == -math.inf


def test_social_influence_keeps_its_heads_and_pays_between_alone_and_bound() -> None:
    game = random_game(11, 30)
    result = baselines.social_influence(game, heads=4)
    top = np.argsort(-game.graph.degrees, kind="stable")[:4].tolist()
    groups = [next(group for group in result.partition if head in group) for head in top]
    assert len(set(groups)) == 4
    assert math.fsum(baselines.non_cooperative(game).payoff) <= result.welfare <= baselines.upper_bound(game)


def test_refit_recovers_the_constants_that_made_the_rows() -> None:
    truth = QualityModel(loss_fit=(0.02, 0.01, 0.008, 7.0, 0.12), quality_offset=101.0, quality_slope=33.0)
    rows = [
        Measurement(sigma, gamma, float(truth.loss(sigma, gamma)), float(truth.quality(sigma, gamma)))
        for sigma in np.linspace(0, 0.8, 9)
        for gamma in (0.1, 1.0, 5.0, 20.0)
    ]
    result = refit(rows)
    assert result.loss_rmse < 1e-6
    assert result.accuracy_rmse < 1e-9
    np.testing.assert_allclose(result.model.loss_fit, truth.loss_fit, rtol=1e-3)
    assert result.model.quality_slope == pytest.approx(33.0)
    with pytest.raises(InvalidQualityModel, match="five"):
        refit(rows[:4])


def test_noise_falls_and_quality_rises_with_trust() -> None:
    """ε increasing, σ non-increasing, q non-decreasing in α."""
    alphas = np.linspace(0, 1, 501)
    for model in (QualityModel(), QualityModel(calibration="exact"), QualityModel(noise_max=0.3)):
        noise = model.noise(alphas)
        assert bool((np.diff(model.budget(alphas)) > 0).all())
        assert bool((np.diff(noise) <= 1e-15).all())
        assert bool((np.diff(model.quality(noise, 1.0)) >= -1e-12).all())


def test_bad_games_are_refused_with_what_was_given() -> None:
    graph = TrustGraph.from_ties(2, [0], [1], [0.5])
    with pytest.raises(InvalidGame, match="non_iid"):
        Game(graph, [1.0])
    with pytest.raises(InvalidGame, match="head_reward"):
        GameParameters(head_reward=-1.0)
    with pytest.raises(InvalidQualityModel, match="noise_max"):
        QualityModel(noise_max=math.inf)
    with pytest.raises(InvalidPartition, match="exactly once"):
        form(Game(graph, 1.0), ((0,),))
    with pytest.raises(InvalidMethod, match="sideways"):
        form(Game(graph, 1.0), singletons(2), "sideways")  # type: ignore[arg-type]
    with pytest.raises(baselines.TooManyDevices, match="local_search"):
        baselines.optimum(random_game(0, 10))
