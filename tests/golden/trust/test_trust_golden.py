"""Numbers worked by hand from spec §1 for [SCFL] eqs (1)-(3) and the choice of a head."""

from __future__ import annotations

import math

import numpy as np
import pytest

from services.trust.domain.evidence import Evidence, Prior, add, direct_trust_at
from services.trust.domain.graph import TrustGraph
from services.trust.domain.parameters import TrustParameters
from services.trust.domain.scores import (
    Interaction,
    best_path,
    centrality,
    choose_head,
    direct_trust,
    indirect_trust,
    trust_matrix,
)

HALVING = TrustParameters(decay_rate=math.log(2) / 10, penalty=2.0, full_duration_seconds=4.0)
"""Evidence halves every 10 s, D = 4 s, ν = 2."""


def test_equation_1_by_hand() -> None:
    # now 20: good 8 s at 20 → 1·1; good 2 s at 10 → ½·½ = ¼; bad 1 s at 0 → −2·¼·¼ = −⅛; K = 3.
    history = [Interaction(True, 8, 20), Interaction(True, 2, 10), Interaction(False, 1, 0)]
    assert direct_trust(history, 20, HALVING) == pytest.approx((1 + 0.25 - 0.125) / 3)
    assert direct_trust(history, 30, HALVING) == pytest.approx((1 + 0.25 - 0.125) / 6)


def test_equation_1_at_its_ends() -> None:
    assert direct_trust([], 0, HALVING) == 0.0
    assert direct_trust([Interaction(False, 4, 0)], 0, HALVING) == 0.0
    assert direct_trust([Interaction(True, 4, 0)] * 7, 0, HALVING) == 1.0
    # One good and one bad of full length: (1 − 2)/2 < 0. Three good and one bad: (3 − 2)/4.
    assert direct_trust([Interaction(True, 4, 0), Interaction(False, 4, 0)], 0, HALVING) == 0.0
    assert direct_trust([Interaction(True, 4, 0)] * 3 + [Interaction(False, 4, 0)], 0, HALVING) == 0.25


def test_a_late_arrival_enters_the_sums_aged() -> None:
    first = add(Evidence(), Interaction(True, 8, 20), HALVING)
    late = add(first, Interaction(False, 2, 0), HALVING)
    # Bad: ½ · 2^(−20/10) = ⅛ at reference 20.
    assert (late.count, late.reference_time) == (2, 20)
    assert (late.positive, late.negative) == pytest.approx((1.0, 0.125))
    assert direct_trust_at(late, 30, HALVING) == pytest.approx((1 - 0.25) / 2 / 2)


def test_a_prior_counts_as_so_many_interactions() -> None:
    once = add(Evidence(), Interaction(True, 4, 0), HALVING)
    # (1 + 3·0.6)/(1 + 3)
    assert direct_trust_at(once, 0, HALVING, Prior(0.6, 3)) == pytest.approx(0.7)
    # ten seconds on: (½ + 1.8)/4
    assert direct_trust_at(once, 10, HALVING, Prior(0.6, 3)) == pytest.approx(0.575)


def test_equation_2_prefers_fewer_hops_then_the_larger_product() -> None:
    # 0–1–3 (.9·.2 = .18), 0–2–3 (.5·.6 = .3); 0–1–2–3 (.9·.9·.6 = .486) is longer and never counts.
    graph = TrustGraph.from_ties(5, [0, 0, 1, 2, 1], [1, 2, 3, 3, 2], [0.9, 0.5, 0.2, 0.6, 0.9])
    assert indirect_trust(graph, 0) == pytest.approx([0, 0.9, 0.5, 0.3, 0])
    path = best_path(graph, 3, 0)
    assert path is not None
    assert (path.devices, path.hops) == ((3, 2, 0), (0.6, 0.5))
    assert best_path(graph, 0, 4) is None


def test_equation_3_gives_strangers_a_fifth_of_the_path() -> None:
    direct = [[0, 0.9, 0], [0.9, 0, 0.8], [0, 0.8, 0]]
    assert trust_matrix(np.array(direct), 0.8).trust[0] == pytest.approx([1, 0.9, 0.2 * 0.72])


def test_a_weak_new_tie_lowers_trust() -> None:
    """α is not monotone in the edge set: a new weak edge can replace a strong two-hop path (spec §1.3)."""
    before = trust_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]), 0.8).trust[0, 2]
    after = trust_matrix(np.array([[0, 1, 0.01], [1, 0, 1], [0.01, 1, 0]]), 0.8).trust[0, 2]
    assert (before, after) == (pytest.approx(0.2), pytest.approx(0.01))


def test_the_head_by_each_rule_in_turn() -> None:
    # Star 1 with leaves 0, 2, 3, and 2–3: centralities 1, 3, 2, 2.
    direct = np.array([[0, 0.4, 0, 0], [0.4, 0, 0.5, 0.6], [0, 0.5, 0, 0.1], [0, 0.6, 0.1, 0]])
    trust = trust_matrix(direct, 0.8).trust
    assert centrality(direct, [0, 1, 2, 3]).tolist() == [1, 3, 2, 2]
    assert choose_head(direct, trust, [3, 2, 1, 0]) == 1
    # Without 1, devices 2 and 3 tie on one neighbour; 0 adds .2·.4·.5 = .04 to 2 and .2·.4·.6 = .048 to 3.
    assert choose_head(direct, trust, [0, 2, 3]) == 3
    # A pair ties on both: the smaller id.
    assert choose_head(direct, trust, [3, 2]) == 2
    assert choose_head(direct, trust, [3]) == 3
