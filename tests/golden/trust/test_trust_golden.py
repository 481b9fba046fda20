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
    direct_trust,
    indirect_trust,
    trust_matrix,
)
from tests.golden.trust.head_choice import centrality, choose_head

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
    assert (late.positive_weight, late.negative_weight) == pytest.approx((1.0, 0.25))
    # Ten seconds on everything is worth half: (½ − 2/16)/(1.25/2 + 5).
    assert direct_trust_at(late, 30, HALVING) == pytest.approx(0.375 / 5.625)


def test_a_prior_counts_as_so_many_interactions() -> None:
    once = add(Evidence(), Interaction(True, 4, 0), HALVING)
    # (1 + 7·0.6)/(1 + 7)
    assert direct_trust_at(once, 0, HALVING, prior=Prior(0.6, 7)) == pytest.approx(0.65)
    # ten seconds on: (½ + 4.2)/(½ + 7)
    assert direct_trust_at(once, 10, HALVING, prior=Prior(0.6, 7)) == pytest.approx(4.7 / 7.5)
    # A prior that weighs less than not knowing is shrunk like everything else: 3·0.6/5.
    assert direct_trust_at(Evidence(), 0, HALVING, prior=Prior(0.6, 3)) == pytest.approx(0.36)


def meetings(times: list[float], parameters: TrustParameters, *, witnessed: bool = False) -> Evidence:
    result = Evidence()
    for at in times:
        result = add(result, Interaction(True, 600, at), parameters, witnessed=witnessed)
    return result


def test_live_pair_reaches_threshold_after_twelve_meetings_in_two_days() -> None:
    """Spec §1.3a: κ = 5, evidence halves in 30 days; eight meetings on the first day, four on the second."""
    live, day = TrustParameters(), 86_400.0
    half_day = 2 ** (-0.5 / 30)
    eleven = meetings([0.0] * 8 + [day / 2] * 3, live)
    # (8·2^(−1/60) + 3)/(same + 5) = 0.6858…; the twelfth lifts it to 0.70432…
    assert direct_trust_at(eleven, day / 2, live) == pytest.approx((8 * half_day + 3) / (8 * half_day + 8))
    twelve = meetings([0.0] * 8 + [day / 2] * 4, live)
    assert round(direct_trust_at(twelve, day / 2, live), 4) == 0.7043
    assert direct_trust_at(eleven, day / 2, live) < 0.7 < direct_trust_at(twelve, day / 2, live)


def test_pair_that_meets_daily_keeps_its_trust_and_loses_it_when_it_stops() -> None:
    """K′ ages with the sums: a daily pair tends to k/(k + κ), k = 1/(1 − 2^(−1/30)) = 43.78: 0.8975."""
    live, day = TrustParameters(), 86_400.0
    year = meetings([k * day for k in range(365)], live)
    assert direct_trust_at(year, 364 * day, live) == pytest.approx(0.8975, abs=1e-4)
    # Ten half-lives later 43.78/1024 = 0.04275 is left: 0.04275/5.04275.
    assert direct_trust_at(year, 664 * day, live) == pytest.approx(0.0085, abs=1e-4)
    paper = [Interaction(True, 600, k * day) for k in range(365)]
    assert direct_trust(paper, 364 * day, live) == pytest.approx(0.12, abs=5e-3)  # eq (1) as printed


def test_rounds_alone_end_at_the_witness_cap() -> None:
    live = TrustParameters()
    assert direct_trust_at(meetings([0.0], live, witnessed=True), 0, live) == pytest.approx(1 / 6)
    assert direct_trust_at(meetings([0.0] * 5, live, witnessed=True), 0, live) == pytest.approx(0.5)
    many = meetings([0.0] * 500, live, witnessed=True)
    assert direct_trust_at(many, 0, live) == 0.5
    for _ in range(3):
        many = add(many, Interaction(True, 60, 0), live)
    # Three meetings alone are worth 3/8; beside many rounds the bound is ½ + ½·3/8.
    assert direct_trust_at(many, 0, live) == pytest.approx(0.6875)
    # Witnessed misconduct counts in full: (500 − 2·300)/… < 0.
    bad = many
    for _ in range(300):
        bad = add(bad, Interaction(False, 60, 0), live, witnessed=True)
    assert direct_trust_at(bad, 0, live) == 0.0


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
    assert centrality(direct, [0, 1, 2, 3]) == [1, 3, 2, 2]
    assert choose_head(direct, trust, [3, 2, 1, 0]) == 1
    # Without 1, devices 2 and 3 tie on one neighbour; 0 adds .2·.4·.5 = .04 to 2 and .2·.4·.6 = .048 to 3.
    assert choose_head(direct, trust, [0, 2, 3]) == 3
    # A pair ties on both: the smaller id.
    assert choose_head(direct, trust, [3, 2]) == 2
    assert choose_head(direct, trust, [3]) == 3
