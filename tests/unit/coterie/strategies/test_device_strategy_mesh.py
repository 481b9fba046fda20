"""A device's round in a mesh: what leaves it, what it takes in, what it keeps and measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agent.home import TaskState
from coterie.errors import Declined, NotInCircle, RoundOver
from coterie.learning.mixing import MeshState
from coterie.protocol.letters import Subject, read_header
from coterie.secure_sums.circle import Circle
from coterie.strategies import strategy_for
from coterie.strategies.device_state import DeviceState, Measured, Stream
from coterie.strategies.mesh import Mesh
from tests.unit.coterie.strategies.mesh_devices import (
    SIZE,
    Device,
    PostOffice,
    expected_step,
    send_only,
    start_of,
    work_for,
    write,
)

# --- a round ----------------------------------------------------------------------------------------------------------


def test_the_strategy_is_found_by_its_topology_whatever_the_privacy(ada: Device, bobby: Device) -> None:
    for privacy in ("partial", "none"):
        assert isinstance(strategy_for(work_for(ada, [bobby], privacy=privacy)), Mesh)


def test_a_device_mixes_what_its_neighbour_sent_and_takes_its_own_step(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    theirs = np.arange(SIZE, dtype=np.float32)
    write(office, bobby, ada, theirs)
    delivery = ada.round(work_for(ada, [bobby]))
    own = start_of(ada)
    start = DeviceState(MeshState.start(own), Stream(5))
    expected = expected_step(ada, own.astype(np.float32), {0: theirs}, 0.5, 1, start)
    assert np.allclose(ada.state().learner.parameters, expected, atol=1e-6)
    assert delivery.tensors is None
    assert delivery.form == "report"
    assert delivery.privacy == ()
    assert delivery.metrics["heard"] == 1.0
    assert delivery.metrics["simulated_transfer_seconds"] == 2.0
    assert "consensus_distance" not in delivery.metrics


def test_device_without_promised_noise_reports_neighbour_distances(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    theirs = np.arange(SIZE, dtype=np.float32)
    write(office, bobby, ada, theirs)
    delivery = ada.round(work_for(ada, [bobby], privacy="none"))
    own = start_of(ada)
    apart = float(np.sqrt(np.mean((theirs - own) ** 2)))
    assert delivery.metrics["consensus_distance"] == pytest.approx(apart, rel=1e-5)


@pytest.mark.parametrize("terms", [{}, {"sensitivity": "paper"}])
def test_nothing_unhidden_by_noise_leaves_the_owners_circle(
    office: PostOffice, ada: Device, bobby: Device, terms: dict[str, Any]
) -> None:
    work = work_for(ada, [bobby], noised=bool(terms), privacy="partial", terms=terms)
    ada.circle = Circle()
    with pytest.raises(NotInCircle, match="coterie circle verify bobby") as refused:
        ada.round(work)
    assert refused.value.strangers == ("bobby",)
    assert not office.letters_by_round
    ada.round(work_for(ada, [bobby], noised=True, privacy="partial", trusted=False))
    assert len(office.letters_by_round) == 1


def test_a_missing_neighbours_weight_returns_to_the_device_itself(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    delivery = ada.round(work_for(ada, [bobby]))
    own = start_of(ada)
    start = DeviceState(MeshState.start(own), Stream(5))
    assert np.allclose(ada.state().learner.parameters, expected_step(ada, own, {}, 0.5, 1, start), atol=1e-6)
    assert delivery.metrics["heard"] == 0.0
    assert "consensus_distance" not in delivery.metrics


def test_no_device_waits_for_a_neighbour_that_is_gone(office: PostOffice, ada: Device, bobby: Device) -> None:
    office.gone = ["bobby"]
    ada.round(work_for(ada, [bobby], deadline_at=1e18))
    assert ada.now < 1e4


def test_neighbours_that_exchange_come_together_and_learn(
    office: PostOffice, tmp_path: Path, ada: Device, bobby: Device
) -> None:
    first = []
    for number in range(1, 8):
        # bobby is killed behind its letters, and started again when ada is done
        send_only(bobby, work_for(bobby, [ada], number))
        first.append(ada.round(work_for(ada, [bobby], number, privacy="none")).metrics["loss"])
        bobby.round(work_for(bobby, [ada], number))
    assert first[-1] < first[0]
    apart = np.abs(ada.state().learner.parameters - bobby.state().learner.parameters).max()
    assert apart < 0.5


# --- letters that are not accepted ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "round", "version"),
    [
        (np.ones(SIZE), 2, 1),
        (np.ones(SIZE), 1, 9),
        (np.ones(SIZE - 1), 1, 1),
        (np.full(SIZE, np.nan), 1, 1),
    ],
    ids=["stale round", "other plan", "wrong size", "not finite"],
)
def test_letter_of_another_round_or_plan_or_bad_parameters_is_missing(
    office: PostOffice, ada: Device, bobby: Device, values: Any, round: int, version: int
) -> None:
    write(office, bobby, ada, values, round, version)
    assert ada.round(work_for(ada, [bobby])).metrics["heard"] == 0.0
    own = start_of(ada)
    start = DeviceState(MeshState.start(own), Stream(5))
    assert np.allclose(ada.state().learner.parameters, expected_step(ada, own, {}, 0.5, 1, start), atol=1e-6)


def test_a_letter_replayed_into_a_later_round_is_dropped(office: PostOffice, ada: Device, bobby: Device) -> None:
    sealed = write(office, bobby, ada, np.ones(SIZE))
    assert ada.round(work_for(ada, [bobby])).metrics["heard"] == 1.0
    office.post(2, "bobby", "ada", sealed)
    assert ada.round(work_for(ada, [bobby], 2)).metrics["heard"] == 0.0


def test_only_the_first_of_two_letters_counts(office: PostOffice, ada: Device, bobby: Device) -> None:
    write(office, bobby, ada, np.ones(SIZE))
    write(office, bobby, ada, np.full(SIZE, 100.0))
    ada.round(work_for(ada, [bobby]))
    assert np.abs(ada.state().learner.parameters).max() < 10


def test_letters_carry_task_round_and_plan_and_hide_the_parameters(
    office: PostOffice, ada: Device, bobby: Device
) -> None:
    ada.round(work_for(ada, [bobby], plan_version=4))
    ((_, _, sealed),) = office.letters_by_round[1, "bobby"].values()
    assert read_header(sealed).subject == Subject("tsk_1", 1, 4, "parameters")
    plain = start_of(ada).astype(np.float32).tobytes()
    assert plain[:16] not in sealed


# --- what is kept -----------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 2**62))
def test_no_sample_is_twice_in_a_batch_and_none_comes_again_within_a_pass(samples: int, size: int, seed: int) -> None:
    stream, seen = Stream(seed), dict[int, list[int]]()
    for _ in range(6):
        batch, stream = stream.take(samples, size)
        assert len(batch) == min(size, samples)
        seen.setdefault(stream.passes, []).extend(batch.tolist())
    for used in seen.values():
        assert len(used) == len(set(used))
        assert set(used) <= set(range(samples))


def test_state_comes_back_from_disk_as_it_was(tmp_path: Path) -> None:
    learner = MeshState(np.arange(3.0), np.ones(3), 0.25, 7)
    state = DeviceState(learner, Stream(2**62, 3, 11), 4, 9, 1.5, {"loss": 0.5, "heard": 1.0})
    state.save(TaskState(tmp_path))
    result = DeviceState.load(TaskState(tmp_path))
    assert result is not None
    assert np.array_equal(result.learner.parameters, learner.parameters)
    assert (result.stream, result.steps, result.round, result.online_loss) == (state.stream, 4, 9, 1.5)
    assert (result.learner.step_size, result.learner.batch_size) == (0.25, 7)
    assert result.metrics == state.metrics


# --- measuring --------------------------------------------------------------------------------------------------------


def test_links_and_speed_are_reported_when_they_are_news(office: PostOffice, ada: Device, bobby: Device) -> None:
    parameters = {"topology": {"times": "measured"}, "privacy": {}}
    write(office, bobby, ada, np.ones(SIZE))
    ada.round(work_for(ada, [bobby], parameters=parameters))
    assert [(a, b) for a, b, _ in office.links] == [("ada", "bobby")]
    assert office.links[0][2] > 0
    assert office.abilities["ada"]["capabilities"]["seconds_per_sample"] > 0
    reported = Measured.load(ada.memory)
    assert reported.links == {"bobby": office.links[0][2]}
    assert not reported.is_news(1.0, 1.2)
    assert reported.is_news(1.0, 1.3)
    assert reported.is_news(1.0, 0.7)


def test_nothing_is_reported_where_times_are_declared(office: PostOffice, ada: Device, bobby: Device) -> None:
    write(office, bobby, ada, np.ones(SIZE))
    ada.round(work_for(ada, [bobby]))
    assert office.links == []
    assert office.abilities == {}


def test_a_round_that_ends_while_letters_are_sent_still_steps(office: PostOffice, ada: Device, bobby: Device) -> None:
    office.refuse = RoundOver("over")
    assert ada.round(work_for(ada, [bobby])).metrics["heard"] == 0.0
    assert ada.state().steps == 1


def test_a_senseless_learning_rate_is_declined(ada: Device, bobby: Device) -> None:
    with pytest.raises(Declined, match="learning_rate"):
        ada.round(work_for(ada, [bobby], training={"learning_rate": -1}))
