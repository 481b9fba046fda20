"""Cells that learn: targets, heads against enumeration, seeds, checkpoints, refusals."""

import dataclasses
import itertools
import time

import numpy as np
import pytest
import safetensors.numpy
import torch

from services.topology.domain.cell_checkpoints import InvalidTraining, Tensors
from services.topology.domain.cell_learning import Policy, PolicyForAnotherLayout, Progress, td_target, train
from services.topology.domain.cell_learning_config import LearningConfig
from services.topology.domain.cell_learning_heads import PointerHead, SetHead
from services.topology.domain.cell_learning_views import TooManyActions, Views, all_sets, best_set, ownership
from services.topology.domain.radio import Layout, Station, User, draw_delays, random_layout
from services.topology.domain.scheduling import Cells, InvalidSchedule

CELLS = Cells.of(random_layout(np.random.default_rng(1), users=6, blocks=2))
SHORT = LearningConfig(steps=30, epoch=10, batch=16, evaluation_states=8, width=8)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_the_vdn_target_adds_the_stations_and_the_iql_target_does_not() -> None:
    """Spec 3.5: VDN target = R + disc·sum."""
    reward, best = torch.tensor([1.0, -2.0]), torch.tensor([[3.0, 5.0], [0.0, 10.0]])
    assert td_target(reward, best, 0.5, "vdn").tolist() == [[5.0], [3.0]]
    assert td_target(reward, best, 0.5, "iql").tolist() == [[2.5, 3.5], [-2.0, 3.0]]
    assert td_target(reward, best, 0.0, "vdn").tolist() == [[1.0], [-2.0]]


def test_twelve_devices_on_four_blocks_make_781_sets() -> None:
    table = all_sets(12, 2, 4)
    assert table.shape == (781, 12)
    assert len(np.unique(table, axis=0)) == 781
    assert set(table.sum(axis=1).tolist()) == {2, 3, 4}
    assert all_sets(1, 2, 4).tolist() == [[True]]


def test_too_many_sets_are_refused_by_name() -> None:
    with pytest.raises(TooManyActions, match="pointer"):
        all_sets(48, 2, 4)


@pytest.mark.parametrize("seed", range(10))
def test_the_best_set_is_optimal_by_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score, delay, handled = rng.normal(size=5), rng.uniform(0, 1, (5, 2)), rng.random(5) < 0.8

    def fits(members: tuple[int, ...]) -> bool:
        orders = itertools.permutations(range(2), len(members))
        return any(all(delay[i, r] <= 0.5 for i, r in zip(members, order, strict=True)) for order in orders)

    sets = [m for k in range(3) for m in itertools.combinations(np.flatnonzero(handled).tolist(), k) if fits(m)]
    best = max(sum(score[i] for i in m) for m in sets)
    chosen = best_set(score, delay, handled, 0.5)
    assert fits(tuple(np.flatnonzero(chosen).tolist()))
    assert score[chosen].sum() == pytest.approx(best)


def test_a_view_holds_no_other_stations_measurements() -> None:
    views = Views.of(CELLS, "plan")
    delay = draw_delays(CELLS.layout, np.random.default_rng(0), 2)
    delay[1] = delay[0]
    delay[1, 1:] *= 1.3  # only the other stations measure something else
    table = views.assemble(views.best(delay))
    assert np.array_equal(table[0, 0], table[1, 0])
    assert not np.array_equal(table[0, 1], table[1, 1])


def test_the_set_heads_greedy_choice_has_the_largest_value() -> None:
    views = Views.of(CELLS, "none")
    head = SetHead(views, 8, 1, np.random.default_rng(0))
    delay = draw_delays(CELLS.layout, np.random.default_rng(0), 3)
    seen = torch.from_numpy(views.assemble(views.best(delay)))
    with torch.no_grad():
        picks = head.greedy(seen, delay)
        value = head.value(seen, torch.from_numpy(picks.astype(np.float32)))
        assert torch.allclose(value, head.best(seen), atol=1e-6)


def test_untrained_pointer_follows_common_plan_and_never_overloads_station() -> None:
    views = Views.of(CELLS, "plan")
    head = PointerHead(views, 8, 1e3, -800.0, np.random.default_rng(0))
    delay = draw_delays(CELLS.layout, np.random.default_rng(0), 20)
    with torch.no_grad():
        picks = head.greedy(torch.from_numpy(views.assemble(views.best(delay))), delay)
    assert (picks <= views.planned).all()
    assert picks.any()
    assert all(CELLS.decide(d, a).valid for d, a in zip(delay, picks, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_common_plan_gives_each_reachable_device_one_owner_that_handles_it(seed: int) -> None:
    cells = Cells.of(random_layout(np.random.default_rng(seed), users=20))
    owner = ownership(cells)
    assert (owner.sum(axis=0) <= 1).all()
    assert (owner <= cells.handled).all()
    # A device that a station reaches in any of many draws has an owner.
    delay = draw_delays(cells.layout, np.random.default_rng(seed), 50)
    reached = np.asarray(((delay <= 0.4) & cells.handled[:, :, None]).any(axis=(0, 1, 3)))
    assert owner.sum(axis=0)[reached].min() == 1


def test_the_common_plan_prefers_a_sure_slot_to_a_fragile_one() -> None:
    """The small device fits both stations, the large one only the second's: the plan must not waste that slot."""
    near, far = Station(0, 0, frozenset({0}), (4e-9,)), Station(600, 0, frozenset({0}), (4e-9,))
    cells = Cells.of(Layout((near, far), (User(300, 0, 0, 20), User(700, 0, 0, 90)), 1))
    assert ownership(cells).tolist() == [[True, False], [False, True]]
    still = Cells.of(dataclasses.replace(cells.layout, fading_decibels=0.0))
    assert ownership(still).tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize(
    "config",
    [
        SHORT,
        dataclasses.replace(SHORT, mixing="iql", prior="rivals", discount=0.5),
        dataclasses.replace(LearningConfig.specified("vdn"), steps=30, epoch=10, batch=16, width=8),
    ],
    ids=["pointer", "discounted-iql", "set"],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(config: LearningConfig) -> None:
    saved: dict[int, bytes] = {}

    def save(step: int, tensors: Tensors) -> None:
        saved[step] = safetensors.numpy.save(tensors)

    whole = train(CELLS, config, 7, save=save)
    resumed = train(CELLS, config, 7, resume=safetensors.numpy.load(saved[10]))
    assert whole.version == resumed.version
    assert whole.version != train(CELLS, config, 8).version
    assert train(CELLS, config, 7, resume=safetensors.numpy.load(saved[30])).version == whole.version


def test_progress_is_reported_from_before_the_first_step() -> None:
    seen: list[Progress] = []
    train(CELLS, SHORT, 0, on_progress=seen.append)
    assert [p.step for p in seen] == [0, 10, 20, 30]
    assert all(p.steps == 30 and 0 <= p.valid <= 1 for p in seen)


def small_policy() -> Policy:
    return train(CELLS, SHORT, 0)


def test_a_policy_for_another_layout_is_refused() -> None:
    other = Cells.of(random_layout(np.random.default_rng(2), users=6, blocks=2))
    (delay,) = draw_delays(other.layout, np.random.default_rng(0), 1)
    saved: list[Tensors] = []
    policy = train(CELLS, SHORT, 0, save=lambda step, tensors: saved.append(tensors))
    with pytest.raises(PolicyForAnotherLayout, match="matching"):
        policy.picks(other, delay)
    with pytest.raises(PolicyForAnotherLayout):
        train(other, SHORT, 0, resume=saved[0])
    with pytest.raises(InvalidTraining, match="another configuration"):
        train(CELLS, SHORT, 1, resume=saved[0])
    with pytest.raises(InvalidTraining, match="meta"):
        train(CELLS, SHORT, 0, resume={})


def test_a_policy_answers_a_round_in_milliseconds() -> None:
    policy = small_policy()
    states = draw_delays(CELLS.layout, np.random.default_rng(0), 30)
    spent = []
    for delay in states:
        start = time.perf_counter()
        policy.picks(CELLS, delay)
        spent.append(time.perf_counter() - start)
    assert float(np.median(spent)) < 0.05


def test_learning_finds_the_devices_of_one_station() -> None:
    """One station, three handled devices in reach on four blocks: serving all three is the only best answer."""
    station = Station(0.0, 0.0, frozenset({0}), (4e-9,) * 4)
    users = (User(50, 0, 0, 40), User(0, 60, 0, 50), User(70, 0, 0, 30), User(50, 50, 1, 30), User(9e4, 0, 0, 30))
    cells = Cells.of(Layout((station,), users, 2))
    config = LearningConfig(prior="none", steps=150, epoch=50, evaluation_states=8)
    policy = train(cells, config, 0)
    (delay,) = draw_delays(cells.layout, np.random.default_rng(5), 1)
    assert policy.picks(cells, delay).tolist() == [[True, True, True, False, False]]


def test_nonsense_configurations_are_refused() -> None:
    for change in ({"steps": 0}, {"structured": 1.5}, {"discount": 1.0}, {"least": -1}, {"batch": 0}):
        with pytest.raises(InvalidTraining):
            dataclasses.replace(SHORT, **change)
    empty = Cells.of(dataclasses.replace(CELLS.layout, users=()))
    with pytest.raises(InvalidSchedule, match="no device"):
        train(empty, SHORT, 0)
