"""[CAPP] section IV on graphs with the vertices, edges and largest degree of Table I.

The graphs are generated (the paper's subgraphs are not published), so budgets and losses are compared with the
reference within the spread of such draws: 15 % for saturation budgets, 0.35 for mean losses.
"""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from coterie_lab.survey import (
    FINAL_LOSS,
    SATURATION,
    SHAPES,
    draw_care,
    draw_weights,
    find_subgraph,
    generate,
    load_facebook,
    measure,
    negative_variances,
    saturation,
)
from services.pricing.domain.collection import collect
from services.pricing.domain.correlated_users import Survey, hidden_variances
from services.pricing.domain.influence import Matrix

NAMES = tuple(SHAPES)


def network(name: str, *, mean: float = 2.0, spread: float = 0.2, all_users: bool = False) -> tuple[Matrix, Matrix]:
    generator = np.random.default_rng(1)
    graph = generate(SHAPES[name], generator)
    return draw_weights(graph, mean, generator), draw_care(graph, spread, generator, all_pairs=all_users)


@pytest.mark.parametrize("name", NAMES)
def test_generated_networks_have_the_shape_of_table_1(name: str) -> None:
    """Average degrees 2E/V: 9.9, 15.47 (printed 15.45), 18.55, 22.84 (printed 22.48)."""
    weights, _ = network(name)
    degrees = (weights > 0).sum(axis=1)
    shape = SHAPES[name]
    assert (len(weights), degrees.sum() // 2, degrees.max()) == (shape.vertices, shape.edges, shape.degree)
    printed = {"S1": 9.9, "S2": 15.47, "S3": 18.55, "S4": 22.84}
    assert degrees.mean() == pytest.approx(printed[name], abs=0.005)


@pytest.mark.parametrize("name", NAMES)
def test_figure_1_accuracy_saturates_near_the_reference_budget(name: str) -> None:
    weights, care = network(name)
    result = saturation(weights, care)
    reference = {"S1": 250, "S2": 540, "S3": 800, "S4": 1150}[name]  # the grid of 100 shows 300, 600, 800, 1200
    assert result == pytest.approx(reference, rel=0.15)
    assert SATURATION[name] - 150 <= result <= SATURATION[name] + 100
    last = measure(weights, care, budget=1500, constant=10, error_squared=200)
    assert last.status == "saturated"
    assert last.accuracy == pytest.approx(1, abs=0.01)
    assert last.loss == pytest.approx(FINAL_LOSS[name], abs=0.35)


def test_figure_1_loss_is_steepest_for_the_smallest_network() -> None:
    """Slope about 1/Σs per unit of budget: 2.8 per 100 for S1, 0.53 for S4. The paper says S4; not reproduced."""
    slopes = {}
    for name in NAMES:
        weights, care = network(name)
        one, two = (measure(weights, care, budget=b, constant=10, error_squared=200) for b in (60, 100))
        slopes[name] = (two.loss - one.loss) / 0.4
        assert slopes[name] == pytest.approx(100 / care.sum(), rel=0.1)
    assert slopes["S1"] > slopes["S2"] > slopes["S3"] > slopes["S4"]
    assert slopes["S1"] == pytest.approx(2.8, rel=0.15)
    assert slopes["S4"] == pytest.approx(0.53, rel=0.15)


def test_care_for_all_users_does_not_saturate_the_large_networks() -> None:
    """Spec 2.4: S1 at about 450, S2 960, S3 1500+, S4 not by 1500."""
    result = {name: saturation(*network(name, all_users=True)) for name in NAMES}
    assert result["S1"] == pytest.approx(450, rel=0.15)
    assert result["S2"] == pytest.approx(960, rel=0.1)
    assert result["S3"] > 1400
    weights, care = network("S4", all_users=True)
    assert measure(weights, care, budget=1500, constant=10, error_squared=200).accuracy == 0


def test_figure_2_accuracy_falls_with_correlation_and_steepest_for_s4() -> None:
    """B = 5, C = 6, ε² = 40, μ from 0.5 to 5: S4 −3.6 → −8.3, S1 −5.9 → −7.5, loss about constant."""
    ends = {}
    for name in NAMES:
        points = []
        for mean in (0.5, 2.5, 5.0):
            weights, care = network(name, mean=mean)
            points.append(measure(weights, care, budget=5, constant=6, error_squared=40))
        values = [point.unclipped for point in points]
        assert values == sorted(values, reverse=True)
        assert max(point.accuracy for point in points) == 0  # with the printed constants nothing is certified
        assert points[0].loss == pytest.approx(points[-1].loss, abs=0.15)
        ends[name] = (values[0], values[-1])
    assert ends["S4"] == pytest.approx((-3.6, -8.3), abs=0.3)
    assert ends["S1"] == pytest.approx((-5.9, -7.5), abs=0.4)
    drop = {name: first - last for name, (first, last) in ends.items()}
    assert max(drop, key=lambda name: drop[name]) == "S4"


def test_figure_3_accuracy_and_loss_fall_with_care() -> None:
    """σ from 0.05 to 1: both fall; S4's loss 1.05 → 0.09."""
    for name in NAMES:
        points = []
        for spread in (0.05, 0.3, 1.0):
            weights, care = network(name, spread=spread)
            points.append(measure(weights, care, budget=50, constant=10, error_squared=2.2e4))
        assert [p.unclipped for p in points] == sorted((p.unclipped for p in points), reverse=True)
        assert [p.loss for p in points] == sorted((p.loss for p in points), reverse=True)
    assert (points[0].loss, points[-1].loss) == pytest.approx((1.05, 0.09), rel=0.15)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [50, 100, 200])
def test_the_papers_p2_asks_for_negative_variances(name: str, budget: float) -> None:
    """All users inside with one common base: 6 to 30 users get a negative "variance" in every setting (spec 2.3)."""
    assert negative_variances(*network(name), budget) >= 6


def test_pivot_prices_work_where_p2_does_not() -> None:
    for name in NAMES:
        weights, care = network(name)
        plan = collect(Survey(hidden_variances(weights), care), 50.0)
        assert plan.status == "tight"
        assert plan.tariff is not None
        assert (plan.tariff.slopes > 0).all()
        assert (plan.tariff.variances >= 0.01 - 1e-12).all()
        assert plan.tariff.payments.sum() == pytest.approx(50)


def test_annealing_finds_a_shape_inside_a_larger_graph() -> None:
    rng = np.random.default_rng(0)
    graph = np.triu(rng.uniform(size=(150, 150)) < 0.5, 1)
    result = find_subgraph(graph | graph.T, SHAPES["S1"], rng)
    assert (len(result), result.sum() // 2, result.sum(axis=0).max()) == (20, 99, 14)


def test_a_missing_or_wrong_facebook_file_is_noticed(tmp_path: Path) -> None:
    assert load_facebook(None) is None
    assert load_facebook(tmp_path) is None
    with gzip.open(tmp_path / "facebook_combined.txt.gz", "wt") as file:
        file.write("0 1\n1 2\n")
    with pytest.raises(ValueError, match="4039"):
        load_facebook(tmp_path)


def test_tight_budget_is_the_weighted_loss() -> None:
    """When tight, Σ_ij s_ij l_j = B exactly (spec 2.3), whatever the network."""
    weights, care = network("S3")
    survey = Survey(hidden_variances(weights), care)
    total = collect(survey, 300.0).total
    assert float(care.sum(axis=0) @ (10 - np.log(total + survey.hidden))) == pytest.approx(300, abs=1e-8)
    assert total < math.exp(10)
