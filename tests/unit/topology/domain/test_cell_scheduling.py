"""The scheduling game and the policies that see everything."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.records.enums import ScheduleStatus
from services.topology.domain.cell_noise import NoiseWeights, unbounded_noise
from services.topology.domain.radio import NO_TASK, Layout, Station, User, draw_delays, random_layout
from services.topology.domain.scheduling import NO_STATION, Cells, InvalidSchedule, Reward
from services.topology.domain.scheduling_policies import at_random, greedy, matching, schedule

A = Station(0.0, 0.0, frozenset({0}), (0.0, 0.0))
B = Station(9.0, 0.0, frozenset({0, 1}), (0.0, 0.0))
USERS = (User(1.0, 0.0, 0, 30), User(8.0, 0.0, 0, 10), User(8.0, 1.0, 1, 20))
CELLS = Cells.of(Layout((A, B), USERS, 2))
# Seconds (station, device, block), limit .4: A hears device 0 best, B devices 1 and 2; device 1 reaches A badly.
DELAY = np.array([[[0.1, 0.2], [0.3, 0.5], [0.1, 0.1]], [[0.3, 0.3], [0.1, 0.2], [0.2, 0.1]]])


def picks(a: list[int], b: list[int]) -> np.ndarray:
    table = np.zeros((2, 3), dtype=bool)
    table[0, a] = True
    table[1, b] = True
    return table


def dp(*samples: int) -> float:
    return unbounded_noise(list(samples), NoiseWeights()).value


def test_a_valid_decision_by_hand() -> None:
    outcome = CELLS.decide(DELAY, picks([0], [1, 2]))
    assert outcome.station.tolist() == [0, 1, 1]
    assert outcome.block.tolist() == [0, 0, 1]
    assert outcome.valid
    # All data served: −400·2 + 400·(.75 − dp(30)) + 400·(.25 + 1 − dp(10, 20)).
    assert outcome.reward == pytest.approx(-400 * (dp(30) + dp(10, 20)))


def test_device_picked_twice_joins_quicker_station_and_violates_at_other() -> None:
    outcome = CELLS.decide(DELAY, picks([0, 1], [1, 2]))
    assert outcome.station.tolist() == [0, 1, 1]
    assert outcome.violators.tolist() == [1, 0]
    assert outcome.reward == pytest.approx(-800 - 1000 + 400 * (1.25 - dp(10, 20)))


def test_the_quicker_station_must_handle_the_task() -> None:
    """Device 2 is as quick at A, which does not handle its task: A violates, B serves."""
    outcome = CELLS.decide(DELAY, picks([2], [2]))
    assert outcome.station[2] == 1
    assert outcome.violators.tolist() == [1, 0]


def test_an_unhandled_task_and_a_missing_block_violate_quadratically() -> None:
    late = DELAY.copy()
    late[0, 0] = 0.5
    outcome = CELLS.decide(late, picks([0, 2], []))
    assert outcome.violators.tolist() == [2, 0]
    assert (outcome.station == NO_STATION).all()
    assert outcome.reward == pytest.approx(-800 - 4000)


def test_more_picks_than_blocks_violate() -> None:
    outcome = CELLS.decide(DELAY, picks([], [0, 1, 2]))
    assert outcome.violators.tolist() == [0, 1]


def test_a_fixed_penalty_ignores_how_many_violate() -> None:
    cells = Cells.of(CELLS.layout, Reward(penalty="fixed", fixed_penalty=1e5))
    assert cells.decide(DELAY, picks([2], [])).reward == pytest.approx(-800 - 1e5)
    assert cells.decide(DELAY, picks([1, 2], [1])).reward == pytest.approx(-800 - 1e5 + 400 * (0.25 - dp(10)))


def test_joint_scope_values_the_whole_decision() -> None:
    cells = Cells.of(CELLS.layout, Reward(scope="joint"))
    assert cells.decide(DELAY, picks([0], [1, 2])).reward == pytest.approx(-400 * dp(30, 10, 20))
    assert cells.decide(DELAY, picks([0, 1, 2], [1, 2])).reward == pytest.approx(-4000)
    both = cells.decide(DELAY, picks([2], [0, 1, 2]))
    assert both.reward == pytest.approx(-1000 * int(both.violators.sum()) ** 2)


@pytest.mark.parametrize("scope", ["bs", "joint"])
def test_the_empty_decision_costs_all_the_data(scope: str) -> None:
    """Spec 3.5: empty action = −scale·kappa·K."""
    cells = Cells.of(CELLS.layout, Reward(scope=scope))  # type: ignore[arg-type]
    assert cells.decide(DELAY, picks([], [])).reward == -800.0


@given(st.integers(0, 30), st.integers(0, 2**32 - 1), st.floats(0.02, 0.6))
def test_invalid_decisions_are_exactly_those_below_minus_1000(network: int, seed: int, density: float) -> None:
    """Spec 3.5: invalid <=> some M_b > 0 <=> R < −1000 (scope bs)."""
    cells = Cells.of(random_layout(np.random.default_rng(network), users=8, blocks=3))
    rng = np.random.default_rng(seed)
    (delay,) = draw_delays(cells.layout, rng, 1)
    outcome = cells.decide(delay, rng.random((3, 8)) < density)
    assert outcome.valid == (outcome.reward >= -1000.0)
    assert outcome.violators.min() >= 0


@pytest.mark.parametrize("seed", range(8))
def test_matching_serves_the_most_data_by_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout = random_layout(rng, stations=2, users=5, blocks=2, mean_interference_watts=8e-9)
    cells = Cells.of(layout)
    (delay,) = draw_delays(layout, rng, 1)
    best, best_reward = 0.0, -math.inf
    for choice in itertools.product([NO_STATION, 0, 1], repeat=5):
        table = np.array([[c == b for c in choice] for b in (0, 1)])
        outcome = cells.decide(delay, table)
        if outcome.valid:
            best = max(best, float(cells.shares[outcome.station != NO_STATION].sum()))
            best_reward = max(best_reward, outcome.reward)
    outcome = cells.decide(delay, matching(cells, delay))
    assert outcome.valid
    assert cells.shares[outcome.station != NO_STATION].sum() == pytest.approx(best)
    # Near-optimal in reward: the noise part it ignores is a few units of 800.
    assert best_reward - 5.0 <= outcome.reward <= best_reward + 1e-9


@given(st.integers(0, 50), st.integers(1, 20))
def test_platform_policies_never_violate_and_matching_serves_most_data(network: int, users: int) -> None:
    rng = np.random.default_rng(network)
    cells = Cells.of(random_layout(rng, users=users, blocks=2))
    (delay,) = draw_delays(cells.layout, rng, 1)
    outcomes = [
        cells.decide(delay, table)
        for table in (matching(cells, delay), greedy(cells, delay), at_random(cells, delay, rng))
    ]
    assert all(outcome.valid for outcome in outcomes)
    data = [float(cells.shares[outcome.station != NO_STATION].sum()) for outcome in outcomes]
    assert data[0] >= max(data[1:]) - 1e-6


def test_a_schedule_names_the_reason_for_everyone() -> None:
    users = (
        User(5.0, 0.0, 0, 50),
        User(6.0, 0.0, 0, 5),
        User(7.0, 0.0, 0, 0),
        User(7.0, 0.0, NO_TASK, 10),
        User(7.0, 0.0, 1, 10),
        User(9e4, 0.0, 0, 10),
    )
    cells = Cells.of(Layout((Station(0.0, 0.0, frozenset({0}), (4e-9,)),), users, 2))
    (delay,) = draw_delays(cells.layout, np.random.default_rng(0), 1)
    answer = schedule(cells, delay, matching(cells, delay))
    assert answer.device_status == (
        "served",
        "crowded out",
        "no data",
        "no model",
        "no cell for its model",
        "out of range",
    )
    assert answer.status is ScheduleStatus.PARTIAL
    assert answer.noise[0] > 0
    assert (answer.noise[1:] == 0).all()
    assert (answer.budget[1:] == 0).all()
    idle = schedule(cells, delay, np.zeros((1, 6), dtype=bool))
    assert idle.status is ScheduleStatus.EMPTY
    assert idle.device_status[:2] == ("passed", "passed")


def test_noise_bounds_reach_the_schedule() -> None:
    answer = schedule(CELLS, DELAY, picks([0], [1, 2]), low=[2.0, 0.0, 0.0], high=[3.0, 0.01, 9.0])
    assert answer.noise[0] == 2.0
    assert answer.noise[1] == 0.01
    assert answer.status is ScheduleStatus.COMPLETE


@pytest.mark.parametrize("users", [(), (User(9e5, 0.0, 0, 10),)])
def test_zero_devices_or_none_in_range_serves_no_device(users: tuple[User, ...]) -> None:
    cells = Cells.of(Layout((dataclasses.replace(A, interference_watts=(4e-9,)),), users, 1))
    (delay,) = draw_delays(cells.layout, np.random.default_rng(0), 1)
    for table in (matching(cells, delay), greedy(cells, delay), at_random(cells, delay, np.random.default_rng(0))):
        assert schedule(cells, delay, table).status is ScheduleStatus.EMPTY


def test_a_station_without_blocks_serves_no_device() -> None:
    cells = Cells.of(Layout((dataclasses.replace(A, interference_watts=()),), USERS[:2], 1))
    (delay,) = draw_delays(cells.layout, np.random.default_rng(0), 1)
    assert schedule(cells, delay, matching(cells, delay)).device_status == ("out of range", "out of range")
    assert cells.decide(delay, np.ones((1, 2), dtype=bool)).violators.tolist() == [2]


def test_rewards_that_blur_violations_and_misfit_tables_are_refused() -> None:
    with pytest.raises(InvalidSchedule, match="below 1000"):
        Cells.of(CELLS.layout, Reward(scale=500.0))
    with pytest.raises(InvalidSchedule, match="scale"):
        Reward(scale=-1.0)
    with pytest.raises(InvalidSchedule, match="do not fit"):
        CELLS.decide(DELAY[:1], picks([], []))
