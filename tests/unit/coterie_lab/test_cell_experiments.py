"""The multi-task experiments: the clustering loop and the reading of curves."""

import numpy as np
import pytest

from coterie_lab.experiments.dpvd import weighed
from coterie_lab.experiments.dpvd_learners import sooner
from coterie_lab.multitask import Fleet, clustering, common_plan, references
from services.topology.domain.cell_learning import Progress
from services.topology.domain.radio import draw_delays, random_layout
from services.topology.domain.scheduling import Cells


def test_devices_find_their_groups_better_as_rounds_pass() -> None:
    """Not always perfectly: two models may settle on one task, and stay."""
    fleet = Fleet(samples=200, noise=0.0, rounds=25)
    runs = [clustering(fleet, 0.5, seed) for seed in range(4)]
    assert np.mean([run[-1] for run in runs]) > np.mean([run[0] for run in runs]) + 0.2
    assert np.array_equal(runs[0], clustering(fleet, 0.5, 0))


def test_saved_epochs_compare_first_valid_decisions_and_rank_failures_last() -> None:
    """50 steps an epoch: valid after one epoch against never in two, which counts as three."""
    quick = [Progress(0, 100, -9.0, 0.1), Progress(50, 100, -8.0, 0.95), Progress(100, 100, -7.0, 0.5)]
    never = [Progress(0, 100, -9.0, 0.1), Progress(50, 100, -8.0, 0.2), Progress(100, 100, -7.0, 0.3)]
    values = {
        (item.figure, item.series): item.value for item in sooner({"ours": quick, "theirs": never}, "ours", "theirs")
    }
    assert values["epochs to 90 % valid", "ours"] == 1.0
    assert values["epochs to 90 % valid", "theirs"] == 3.0
    assert values["epochs saved", "ours"] == pytest.approx(2 / 3)


def test_more_weight_on_privacy_means_more_noise_and_smaller_budgets() -> None:
    result = weighed({"devices": 12}, 0, None)
    costs = [item.value for item in result if item.figure == "loss by noise"]
    budgets = [item.value for item in result if item.figure == "privacy loss"]
    assert costs == sorted(costs)
    assert budgets == sorted(budgets, reverse=True)


def test_the_common_plan_never_violates_and_matching_serves_no_less() -> None:
    layout = random_layout(np.random.default_rng(3))
    cells = Cells.of(layout)
    states = draw_delays(layout, np.random.default_rng(0), 20)
    plan = common_plan(cells)
    assert all(cells.decide(delay, plan(delay)).valid for delay in states)
    scores = references(cells, states, 0)
    assert scores["matching (sees all)"].data >= scores["common plan (no learning)"].data - 1e-9
    assert all(score.valid == 1.0 for score in scores.values())
