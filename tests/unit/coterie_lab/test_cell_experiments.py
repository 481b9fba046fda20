"""The multi-task experiments: the clustering loop and the reading of curves."""

import numpy as np

from coterie_lab.multitask import Fleet, clustering, common_plan, first_valid, references
from services.topology.domain.radio import draw_delays, random_layout
from services.topology.domain.scheduling import Cells


def test_devices_find_their_groups_better_as_rounds_pass() -> None:
    """Not always perfectly: two models may settle on one task, and stay."""
    fleet = Fleet(samples=200, noise=0.0, rounds=25)
    runs = [clustering(fleet, 0.5, seed) for seed in range(4)]
    assert np.mean([run[-1] for run in runs]) > np.mean([run[0] for run in runs]) + 0.2
    assert np.array_equal(runs[0], clustering(fleet, 0.5, 0))


def test_the_first_valid_epoch_is_read_from_the_curve() -> None:
    assert first_valid([(0, -9.0, 0.1), (50, -8.0, 0.95), (100, -7.0, 0.5)]) == "1"
    assert first_valid([(0, -9.0, 0.1)]) == "never"


def test_the_common_plan_never_violates_and_matching_serves_no_less() -> None:
    layout = random_layout(np.random.default_rng(3))
    cells = Cells.of(layout)
    states = draw_delays(layout, np.random.default_rng(0), 20)
    plan = common_plan(cells)
    assert all(cells.decide(delay, plan(delay)).valid for delay in states)
    scores = references(cells, states, 0)
    assert scores["matching (sees all)"].data >= scores["common plan (no learning)"].data - 1e-9
    assert all(score.valid == 1.0 for score in scores.values())
