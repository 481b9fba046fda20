"""The compiled, pruned formation against a slow plain one written from the specification alone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.topology.domain.coalition import (
    Game,
    GameParameters,
    InvalidGame,
    Partition,
    evaluate,
    preference,
    singletons,
)
from services.topology.domain.formation import Method, form
from services.topology.domain.formation_search import partitions
from services.topology.domain.quality import QualityModel
from services.topology.domain.stability import blocking_move
from services.trust.domain import scores
from services.trust.domain.graph import TrustGraph
from tests.golden.trust.head_choice import choose_head

TOL = 1e-9
Group = frozenset[int]


class Plain:
    """Spec §1.4-3.3 on dense matrices, nothing cached, nothing skipped."""

    def __init__(self, direct: np.ndarray, gamma: list[float], *, zeta: float = 0.0, forbid: bool = True) -> None:
        self.e, self.gamma, self.zeta, self.forbid = direct, gamma, zeta, forbid
        self.alpha = scores.trust_matrix(direct, 0.8).trust

    def quality(self, n: int, sigma: float) -> float:
        loss = 0.013 * math.exp(-0.0044 * self.gamma[n]) / (0.0057 + math.exp(-8.18 * sigma)) + 0.14
        return 102.2444 - 35.4278 * loss

    def solo(self, n: int) -> float:
        return 0.52 * self.quality(n, 0.6)

    def noise(self, alpha: float) -> float:
        if alpha >= 0.7 - 1e-12:
            return 0.0
        if alpha == 0:
            return 0.6
        return min(0.6, math.sqrt(2 * math.log(1.25e6)) / (100 * alpha / (alpha + 1)))

    def payoffs(self, group: Group) -> tuple[dict[int, float], set[int]]:
        """Payoff of every member, and who is a stranger to the head."""
        if len(group) == 1:
            return {n: self.solo(n) for n in group}, set()
        head = choose_head(self.e, self.alpha, sorted(group))
        q = {n: self.quality(n, self.noise(self.alpha[n, head])) for n in sorted(group)}
        value = 0.52 * math.fsum(q.values()) - 1.2 * len(group)
        extra = value - math.fsum(self.solo(n) for n in group) - self.zeta
        shares = {n: q[n] / math.fsum(q.values()) * extra + self.solo(n) + self.zeta * (n == head) for n in group}
        return shares, {n for n in group if self.alpha[n, head] == 0}

    def rho(self, n: int, others: Group, history: set[Group]) -> float:
        if not others:
            return self.solo(n)
        joined, strangers = self.payoffs(others | {n})
        if (strangers and self.forbid) or others | {n} in history:
            return -math.inf
        before, _ = self.payoffs(others)
        return joined[n] if all(joined[m] >= before[m] - TOL for m in others) else -math.inf

    def standing(self, n: int, own: Group) -> float:
        payoffs, strangers = self.payoffs(own)
        return -math.inf if self.forbid and n in strangers else payoffs[n]

    def request(self, n: int, groups: set[Group], history: set[Group]) -> tuple[float, Group] | None:
        own = next(group for group in groups if n in group)
        present = self.standing(n, own)
        targets = [group for group in groups if group != own] + ([frozenset()] if len(own) > 1 else [])
        offers = [(self.rho(n, target, history), target) for target in targets]
        offers = [offer for offer in offers if offer[0] > present + TOL]
        if not offers:
            return None
        top = max(rho for rho, _ in offers)
        return min((o for o in offers if o[0] >= top - TOL), key=lambda o: min(o[1], default=10**9))

    def sweep(self, start: Partition) -> tuple[set[Group], int]:
        groups = {frozenset(group) for group in start}
        history: list[set[Group]] = [set() for _ in self.gamma]
        for iteration in itertools.count(1):
            moved = False
            for n in range(len(self.gamma)):
                self.remember(groups, history)
                if (best := self.request(n, groups, history[n])) is not None:
                    groups, moved = self.moved(n, best[1], groups), True
            if not moved:
                return groups, iteration - 1
        raise AssertionError

    def rounds(self, start: Partition) -> tuple[set[Group], int]:
        groups = {frozenset(group) for group in start}
        history: list[set[Group]] = [set() for _ in self.gamma]
        for iteration in itertools.count(1):
            self.remember(groups, history)
            wishes = {n: self.request(n, groups, history[n]) for n in range(len(self.gamma))}
            requests = [(n, *wish) for n, wish in wishes.items() if wish is not None]
            if not requests:
                return groups, iteration - 1
            retained = [request for request in requests if not request[2]]
            for target in {request[2] for request in requests if request[2]}:
                rivals = [request for request in requests if request[2] == target]
                top = max(rho for _, rho, _ in rivals)
                retained.append(min(rival for rival in rivals if rival[1] >= top - TOL))
            changed: dict[Group, str] = {}
            for n, _, target in sorted(retained, key=lambda request: (-round(request[1], 9), request[0])):
                own = next(group for group in groups if n in group)
                if any("admitted" in (changed.get(group, "")) for group in (own, target)) or target in changed:
                    continue
                if target and target not in groups:
                    continue
                groups = self.moved(n, target, groups)
                changed[own - {n}] = "released"
                changed[target | {n}] = "admitted"
        raise AssertionError

    @staticmethod
    def remember(groups: set[Group], history: list[set[Group]]) -> None:
        for group in groups:
            if len(group) > 1:
                for n in group:
                    history[n].add(group)

    @staticmethod
    def moved(n: int, target: Group, groups: set[Group]) -> set[Group]:
        own = next(group for group in groups if n in group)
        return (groups - {own, target} | {own - {n}, target | {n}}) - {frozenset()}

    def stable(self, partition: Partition, *, consent: bool = True) -> bool:
        groups = {frozenset(group) for group in partition}
        for own in groups:
            for n in own:
                for target in [*(groups - {own}), frozenset[int]()]:
                    offer = self.rho(n, target, set())
                    if not consent and target:
                        joined, strangers = self.payoffs(target | {n})
                        offer = -math.inf if strangers and self.forbid else joined[n]
                    if (target or len(own) > 1) and offer > self.standing(n, own) + TOL:
                        return False
        return True


def random_direct(random: np.random.Generator, size: int, density: float, low: float, high: float) -> np.ndarray:
    weights = random.uniform(low, high, (size, size)) * (random.random((size, size)) < density)
    upper = np.triu(np.round(weights, 2), 1)
    return np.asarray(upper + upper.T)


def both(seed: int, size: int) -> tuple[Plain, Game, Partition]:
    """A random game in both implementations, and a random start."""
    random = np.random.default_rng(seed)
    direct = random_direct(random, size, random.choice([0.3, 0.6, 1.0]), 0.0, random.choice([0.7, 1.0]))
    gamma = np.round(random.uniform(0.05, 20, size), 2).tolist()
    zeta, forbid = float(random.choice([0.0, 2.0, 5.0])), bool(random.random() < 0.8)
    game_parameters = GameParameters(head_reward=zeta, strangers="forbid" if forbid else "noise_max")
    labels = random.integers(0, max(1, size // 2), size)
    start = tuple(sorted(tuple(np.flatnonzero(labels == k).tolist()) for k in set(labels.tolist())))
    game = Game(TrustGraph.from_dense(direct), gamma, game_parameters=game_parameters)
    return Plain(direct, gamma, zeta=zeta, forbid=forbid), game, start


@pytest.mark.parametrize("method", ["rounds", "sweep"])
@pytest.mark.parametrize("seed", range(60))
def test_play_is_the_specification_step_for_step(seed: int, method: Method) -> None:
    plain, game, start = both(seed, 3 + seed % 7)
    for begin in (start, singletons(game.size)):
        ours = form(game, begin, method, restarts=0, search=False)
        groups, iterations = plain.rounds(begin) if method == "rounds" else plain.sweep(begin)
        assert {frozenset(group) for group in ours.partition} == groups
        assert ours.iterations == iterations


@pytest.mark.parametrize("seed", range(40))
def test_payoffs_preferences_and_verdicts_agree_with_the_plain_formulas(seed: int) -> None:
    plain, game, _ = both(1_000 + seed, 5)
    for partition in partitions(5):
        for consent in (True, False):
            assert (blocking_move(game, partition, consent=consent) is None) == plain.stable(partition, consent=consent)
    for size in (1, 2, 3, 5):
        for group in itertools.combinations(range(5), size):
            coalition, (payoffs, strangers) = evaluate(game, group), plain.payoffs(frozenset(group))
            np.testing.assert_allclose(coalition.payoff, [payoffs[n] for n in group], atol=1e-11)
            assert coalition.feasible == (not (strangers and plain.forbid))
            for n in set(range(5)) - set(group):
                assert preference(game, n, group) == pytest.approx(plain.rho(n, frozenset(group), set()), abs=1e-11)


@pytest.mark.parametrize("method", ["rounds", "sweep"])
@pytest.mark.parametrize("seed", range(40))
def test_skipping_by_the_far_bound_changes_nothing(seed: int, method: Method) -> None:
    """Pruned = unpruned, transfer by transfer, also where most pairs are two or more hops apart."""
    random = np.random.default_rng(seed)
    size = int(random.integers(8, 40))
    direct = random_direct(random, size, 2.5 / size, 0.0 if seed % 2 else 0.5, 1.0)
    weight = float(random.choice([0.0, 0.5, 0.8, 1.0]))
    game_parameters = GameParameters(head_reward=float(random.choice([0.0, 3.0])))
    game = Game(
        TrustGraph.from_dense(direct),
        random.uniform(0.05, 20, size),
        game_parameters=game_parameters,
        direct_weight=weight,
    )
    labels = random.integers(0, size // 3, size)
    start = tuple(sorted(tuple(np.flatnonzero(labels == k).tolist()) for k in set(labels.tolist())))
    quick = form(game, start, method, search=False)
    slow = form(game, start, method, search=False, pruned=False)
    assert quick.transfers == slow.transfers
    assert quick.partition == slow.partition
    for partition in (start, quick.partition):
        assert blocking_move(game, partition) == blocking_move(game, partition, exhaustive=True)


@pytest.mark.parametrize("method", ["rounds", "sweep"])
@pytest.mark.parametrize("seed", range(20))
def test_skipping_changes_nothing_where_trust_passes_through_bystanders(seed: int, method: Method) -> None:
    random = np.random.default_rng(seed)
    size, taking_part = 60, 25
    whole = TrustGraph.from_dense(random_direct(random, size, 3.0 / size, 0.0 if seed % 2 else 0.5, 1.0))
    chosen = np.sort(random.choice(size, taking_part, replace=False))
    weight = float(random.choice([0.0, 0.5, 0.8, 1.0]))
    known = scores.trust_rows(whole, chosen, weight)
    game_parameters = GameParameters(head_reward=float(random.choice([0.0, 3.0])))
    gamma = random.uniform(0.05, 20, taking_part)
    ties = TrustGraph.from_dense(known.direct)
    game = Game(ties, gamma, game_parameters=game_parameters, direct_weight=weight, trust=known.trust)
    quick = form(game, singletons(taking_part), method, search=False)
    slow = form(game, singletons(taking_part), method, search=False, pruned=False)
    assert quick.transfers == slow.transfers
    assert blocking_move(game, quick.partition) == blocking_move(game, quick.partition, exhaustive=True)
    for cluster in quick.clusters:
        coalition = evaluate(game, cluster.members)
        expected = game.quality.noise(known.trust[list(cluster.members), cluster.head])
        if len(cluster.members) > 1:
            mates = [m for m in cluster.members if m != cluster.head]
            places = [cluster.members.index(m) for m in mates]
            np.testing.assert_allclose(coalition.noise[places], expected[places], atol=1e-11)


def test_game_with_trust_of_the_whole_graph_is_the_same() -> None:
    random = np.random.default_rng(5)
    graph = TrustGraph.from_dense(random_direct(random, 30, 0.1, 0.1, 1.0))
    gamma = random.uniform(0.05, 20, 30)
    given_trust = Game(graph, gamma, trust=scores.trust_rows(graph, np.arange(30), 0.8).trust)
    assert form(given_trust, singletons(30)).transfers == form(Game(graph, gamma), singletons(30)).transfers


def test_trust_that_contradicts_the_ties_is_refused() -> None:
    pair = TrustGraph.from_dense([[0, 0.5], [0.5, 0]])
    apart = TrustGraph.from_dense([[0, 0.0], [0.0, 0]])
    with pytest.raises(InvalidGame, match="between neighbours"):
        Game(pair, 1.0, trust=np.array([[1, 0.6], [0.6, 1]]))
    with pytest.raises(InvalidGame, match="never met"):
        Game(apart, 1.0, trust=np.array([[1, 0.6], [0.6, 1]]))
    with pytest.raises(InvalidGame, match="rows and columns"):
        Game(pair, 1.0, trust=np.ones((3, 3)))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_rows_on_demand_give_the_same_clusters_as_the_whole_trust_matrix(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = 30
    graph = TrustGraph.from_dense(random_direct(random, size, 0.08, 0.1, 1.0))
    gamma = random.uniform(0.05, 20, size)
    whole, lazy = Game(graph, gamma), Game(graph, gamma)
    lazy.tables = lazy.tables._replace(rows=np.empty((0, size)), slot=np.full(size, -1, dtype=np.int64))
    first, second = form(whole, singletons(size)), form(lazy, singletons(size))
    assert first.partition == second.partition
    np.testing.assert_allclose(first.payoff, second.payoff, atol=1e-11)


def test_the_exact_calibration_curve_follows_the_solved_one() -> None:
    model = QualityModel(calibration="exact")
    alphas = np.linspace(0.05, 0.6999, 97)
    for alpha in alphas:
        game = Game(TrustGraph.from_dense([[0, alpha], [alpha, 0]]), 1.0, quality=model)
        assert evaluate(game, [0, 1]).noise[1] == pytest.approx(float(model.noise(np.array([alpha]))[0]), abs=1e-11)
