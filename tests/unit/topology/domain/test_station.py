"""A station's own network: it follows the common plan until it learns, and learns what the joint training would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from coterie.parameters.topology import RadioParameters
from services.topology.domain.cell_checkpoints import InvalidTraining, station_part
from services.topology.domain.cell_learning import policy_for, train
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.cell_learning_heads import PointerHead
from services.topology.domain.cell_learning_views import TooManyActions, Views, check_sets
from services.topology.domain.radio import draw_delays, measured_delays
from services.topology.domain.scheduling import Cells
from services.topology.domain.station import Experience, Sight, StationNetwork, restored, started
from services.topology.planners.cell_network import network, population
from tests.unit.topology.planners.test_planner_cells import cell

SMALL: dict[str, Any] = {"steps": 10, "epoch": 10, "batch": 8, "evaluation_states": 4, "width": 8}


def cells_of(seed: int = 1, users: int = 8) -> Cells:
    stations = [cell(), cell("hill", 400.0)]
    return network(stations, population(stations, users, 2, np.random.default_rng(seed)), 2, RadioParameters())


def sight_of(cells: Cells, views: Views, delay: np.ndarray, station: int) -> tuple[Sight, np.ndarray]:
    """What a station sees, and which devices those are."""
    own = np.flatnonzero(cells.handled[station])
    view = views.assemble(views.best(delay[None]))[0, station, own]
    worth = (views.planned * cells.shares * cells.reward.scale * cells.reward.data_weight)[station, own]
    return Sight(view, worth, delay[station, own], float(cells.limits[station])), own


@pytest.mark.parametrize(
    "config", [LearningConfig(named=False, **SMALL), LearningConfig(named=False, prior="none", **SMALL)]
)
def test_stations_with_their_own_parts_decide_as_the_whole_policy_does(config: LearningConfig) -> None:
    cells = cells_of()
    retained: dict[str, np.ndarray] = {}
    train(cells, config, 1, save=lambda _, tensors: retained.update(tensors))
    others = cells_of(2, 6)
    views = Views.of(others, config.prior, named=False)
    for delay in draw_delays(others.layout, np.random.default_rng(3), 5):
        joint = policy_for(others, retained).picks(others, delay)
        for station in range(2):
            sight, own = sight_of(others, views, delay, station)
            choice = restored(station_part(retained, station)).decide(sight)
            assert np.flatnonzero(joint[station]).tolist() == own[choice.picks].tolist()


def test_the_gradient_of_a_station_is_its_part_of_the_joint_one() -> None:
    """∇_b (Σ_j Q_j − R)² needs of the others Σ_{j≠b} Q_j alone."""
    cells = cells_of()
    views = Views.of(cells, "plan", named=False)
    head = PointerHead(views, 8, 1e3, -150.0, np.random.default_rng(4))
    with torch.no_grad():
        head.element.second.normal_(generator=torch.Generator().manual_seed(1))
    delay = draw_delays(cells.layout, np.random.default_rng(5), 1)
    view = torch.from_numpy(views.assemble(views.best(delay)))
    with torch.no_grad():
        picks = head.greedy(view, delay)
    value = head.value(view, torch.from_numpy(picks.astype(np.float32)))
    ((value.sum() + 0.2) ** 2).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for station in range(2):
        own = StationNetwork(LearningConfig(named=False, width=8), views.features, 0.0, np.random.default_rng(0))
        own.weights |= {name: t.numpy()[station : station + 1].copy() for name, t in head.state_dict().items()}
        sight, users = sight_of(cells, views, delay[0], station)
        own_gradient, picked = own.gradient(sight, picks[0, station, users]), picks[0, station, users]
        error = own.value(sight, picked) + float(value.detach()[0, 1 - station]) + 0.2
        for name, weight in head.named_parameters():
            assert weight.grad is not None
            joint = weight.grad.numpy()[station : station + 1]
            np.testing.assert_allclose(2.0 * error * own_gradient[name], joint, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("head", ["pointer", "set"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_gradient_is_the_slope_of_the_value(head: str, count: int) -> None:
    rng = np.random.default_rng(7)
    config = (
        LearningConfig(named=False, width=4) if head == "pointer" else LearningConfig.specified(named=False, width=4)
    )
    own = StationNetwork(config, 4, -300.0, rng)
    own.weights = {name: rng.normal(size=weight.shape) for name, weight in own.weights.items()}  # type: ignore[misc]
    sight, picks = some_sight(rng), np.arange(5) < count
    for name, slope in own.gradient(sight, picks).items():
        for place in np.ndindex(slope.shape):
            ends = []
            for moved in (-1e-4, 1e-4):
                own.weights[name][place] += moved
                ends.append(own.value(sight, picks))
                own.weights[name][place] -= moved
            assert (ends[1] - ends[0]) / 2e-4 == pytest.approx(slope[place], rel=1e-2, abs=1e-4), name


def some_sight(rng: np.random.Generator, users: int = 5) -> Sight:
    worth = np.where(np.arange(users) < 2, 100.0, 0.0)
    return Sight(rng.normal(size=(users, 4)).astype(np.float32), worth, rng.uniform(0.1, 0.3, (users, 3)), 0.4)


def test_station_that_learned_nothing_follows_plan_and_learns_from_rewards() -> None:
    rng = np.random.default_rng(1)
    own = started(4, -300.0)
    sight = some_sight(rng)
    assert own.decide(sight).picks.tolist() == [True, True, False, False, False]
    assert own.decide(sight).q_value == pytest.approx(-300.0 + 200.0)
    for _ in range(120):
        sight = some_sight(rng)
        own.learn(Experience(sight, own.decide(sight).picks, -500.0, -250.0))
    assert own.decide(sight).q_value == pytest.approx(-250.0, abs=30.0)  # what is left for it of −500


def test_independent_learning_does_not_ask_what_the_neighbours_think() -> None:
    rng = np.random.default_rng(2)
    sight = some_sight(rng)
    picks = started(4, 0.0).decide(sight).picks
    values = []
    for neighbours in (0.0, -900.0):
        own = StationNetwork(LearningConfig(mixing="iql", named=False), 4, 0.0, np.random.default_rng(0))
        own.learn(Experience(sight, picks, -500.0, neighbours))
        values.append(own.decide(sight).q_value)
    assert values[0] == values[1]


@pytest.mark.parametrize("head", ["pointer", "set"])
def test_a_station_goes_on_from_its_checkpoint_as_if_it_had_never_stopped(head: str) -> None:
    rng = np.random.default_rng(3)
    config = (
        LearningConfig(named=False, width=8) if head == "pointer" else LearningConfig.specified(named=False, width=8)
    )
    own = StationNetwork(config, 4, -300.0, np.random.default_rng(0))
    lessons = [(some_sight(rng), -300.0 * rng.random()) for _ in range(6)]
    for sight, reward in lessons[:3]:
        own.learn(Experience(sight, own.decide(sight).picks, reward, 0.0))
    again = restored(own.tensors())
    for item in (own, again):
        for sight, reward in lessons[3:]:
            item.learn(Experience(sight, item.decide(sight).picks, reward, 0.0))
    for sight, _ in lessons:
        first, second = own.decide(sight), again.decide(sight)
        assert first.picks.tolist() == second.picks.tolist()
        assert first.q_value == second.q_value
    with pytest.raises(InvalidTraining, match="not a checkpoint"):
        restored({})


def test_a_set_network_that_names_no_device_schedules_devices_it_never_saw() -> None:
    """The paper's learner: set head, no prior; it may be moved to other devices like the pointer."""
    cells = cells_of()
    retained: dict[str, np.ndarray] = {}
    train(cells, LearningConfig.specified("iql", named=False, **SMALL), 1, save=lambda _, t: retained.update(t))
    others = cells_of(2, 6)
    delay = draw_delays(others.layout, np.random.default_rng(3), 1)[0]
    assert policy_for(others, retained).picks(others, delay).sum(axis=1).min() >= 2
    with pytest.raises(TooManyActions, match="use the pointer network"):
        check_sets(48, 2, 4)


def test_measured_uploads_replace_drawn_ones_up_to_channel_capacity() -> None:
    layout = cells_of().layout
    drawn = draw_delays(layout, np.random.default_rng(1), 1)[0]
    corrected = measured_delays(layout, drawn, {(0, 1): 0.35, (1, 2): 1e-9})
    assert corrected[0, 1].min() == pytest.approx(0.35)
    np.testing.assert_allclose(corrected[0, 1] / corrected[0, 1].min(), drawn[0, 1] / drawn[0, 1].min())
    assert 0.5 * drawn[1, 2].min() < corrected[1, 2].min() < 1.2 * drawn[1, 2].min()
    unchanged = np.ones(drawn.shape[:2], dtype=bool)
    unchanged[[0, 1], [1, 2]] = False
    assert np.array_equal(corrected[unchanged], drawn[unchanged])
    assert measured_delays(layout, drawn, {}) is drawn
