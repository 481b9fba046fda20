"""Whatever a learner does wrong: the round is declined in one line, the traceback is logged, nothing hangs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.agent.report import Tensors
from coterie.agent.results import RoundResult
from coterie.errors import BadLearner, LearnerFailed, WrongModel
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training_config import Instructions
from coterie.privacy.ledger import Limit
from tests.e2e.stand_in import StandIn, problem

UPDATE = "PUT /v1/tasks/{task}/rounds/{round:int}/updates/{device}"


class Counter:
    """A sound learner of one tensor, whose methods tests replace by worse ones."""

    def __init__(self, **worse: Any) -> None:
        self.held, self.state, self.trained_times = 5, np.zeros(3, np.float32), 0
        self.worse: Mapping[str, Callable[[Counter], Any]] = worse

    @property
    def samples(self) -> int:
        result: int = self._or("samples", lambda: self.held)
        return result

    def parameters(self) -> Tensors:
        result: Tensors = self._or("parameters", lambda: {"w": self.state.copy()})
        return result

    def load(self, tensors: Tensors) -> None:
        self.state = np.array(tensors["w"])

    def train(self, instructions: Instructions, seed: int) -> None:
        self.trained_times += 1
        self._or("train", lambda: None)
        self.state = self.state + np.float32(1.0)

    def evaluate(self) -> Mapping[str, float]:
        result: Mapping[str, float] = self._or("evaluate", lambda: {"loss": float(self.state[0])})
        return result

    def _or(self, name: str, otherwise: Callable[[], Any]) -> Any:
        # The first round only: a learner that recovers must take part again.
        return self.worse[name](self) if name in self.worse and self.trained_times <= 1 else otherwise()


def fail(error: Exception) -> Callable[[Any], Any]:
    def raising(learner: Any) -> Any:
        raise error

    return raising


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(save({"w": np.zeros(3, np.float32)}), rounds=2) as server:
        yield server


def agent_of(stand_in: StandIn, home: Path, learner: Any, **options: Any) -> Agent:
    agent = Agent.register(
        stand_in.url, "t", name="phone", home=home, learner=learner, cache=BlobCache(home / "c"), **options
    )
    agent.join("tiny")
    return agent


def test_error_in_authors_code_is_one_line_to_task_and_traceback_in_log(
    stand_in: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = agent_of(stand_in, tmp_path, Counter(train=fail(KeyError("no pixel\nsecond line"))), on_error="continue")
    with caplog.at_level(logging.ERROR, "coterie.agent.agent"):
        summary = agent.run()
    assert [str(result.outcome) for result in summary.rounds] == ["declined", "accepted"]
    ((number, why),) = stand_in.declined
    assert (number, why) == (1, "the learner's train failed: KeyError: 'no pixel\\nsecond line'")
    assert "\n" not in why
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)


def test_agent_stops_at_authors_error_unless_it_goes_on(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_of(stand_in, tmp_path, Counter(train=fail(ZeroDivisionError("by me"))))
    with pytest.raises(LearnerFailed, match="the learner's train failed: ZeroDivisionError: by me") as caught:
        agent.run()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert [number for number, _ in stand_in.declined] == [1]  # the task learns it before the agent stops
    assert [str(result.outcome) for result in agent.run().rounds] == ["accepted"]  # and it can be started again
    with pytest.raises(ValueError, match="give stop or continue"):
        Agent(tmp_path, on_error="ignore")  # type: ignore[arg-type]


def test_beside_noise_the_words_of_an_error_stay_at_home(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 2.0}
    agent = agent_of(stand_in, tmp_path, Counter(train=fail(ValueError("salary 4200"))), on_error="continue")
    agent.run()
    assert stand_in.declined == [(1, "the learner's train failed: ValueError")]


@pytest.mark.parametrize("worse", [fail(ValueError("salary 4200")), lambda c: "salary 4200"])
def test_beside_noise_what_went_wrong_with_number_of_samples_stays_at_home(
    stand_in: StandIn, tmp_path: Path, worse: Any
) -> None:
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 2.0}
    learner = Counter()
    agent = agent_of(stand_in, tmp_path, learner, on_error="continue", limit=Limit(1e4, 1e-5, "device"))
    learner.worse = {"samples": worse}
    agent.run()
    assert stand_in.declined
    assert "salary" not in str(stand_in.declined)


def test_diverged_training_with_noise_sends_noise_around_zeros(
    stand_in: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Declining would tell of the data: whether training diverges depends on it, and no noise covers that."""
    stand_in.work = {"privacy": "uniform", "noise_multiplier": 2.0, "training": {"clip_norm": 1.0}}
    worse = {"parameters": lambda c: {"w": np.array([1, np.nan, 2], np.float32)}}
    learner = Counter()
    agent = agent_of(stand_in, tmp_path, learner, limit=Limit(1e4, 1e-5, "device"))
    learner.worse = worse
    agent.run()
    assert stand_in.declined == []
    assert bool(np.isfinite(load(stand_in.updates[1, "dev_1"][0])["w"]).all())
    assert "zeros are sent in the place of the update" in caplog.text


@pytest.mark.parametrize(
    ("worse", "why"),
    [
        (
            {"parameters": lambda c: {"w": np.array([1, np.nan, 2], np.float32)}},
            "NaN or infinity is in w of the learner",
        ),
        ({"parameters": lambda c: {"v": c.state}}, "returns other tensors than it loaded: without w; with v"),
        ({"parameters": lambda c: {"w": c.state, "b": c.state}}, "returns other tensors than it loaded: with b"),
        ({"parameters": lambda c: {"w": c.state[:2]}}, "gives w the shape [2], it loaded [3]"),
        ({"parameters": lambda c: {"w": np.arange(3)}}, "gave w as int64; tensors hold floating-point numbers"),
        ({"parameters": lambda c: [c.state]}, "parameters gave list, not a dict of arrays"),
        ({"evaluate": lambda c: {"loss": "low"}}, "the learner's figure 'loss' is not a plain number"),
        ({"evaluate": lambda c: 0.5}, "evaluate gave float, not a dict of numbers"),
        ({"samples": lambda c: 0}, "has no training samples now"),
        ({"samples": lambda c: -2}, "samples are '-2'; they must be a whole number from 0 on"),
    ],
)
def test_what_no_model_can_be_made_of_is_declined_and_next_round_is_done(
    stand_in: StandIn, tmp_path: Path, worse: dict[str, Any], why: str
) -> None:
    learner = Counter()
    agent = agent_of(stand_in, tmp_path, learner)
    learner.worse, asked = worse, []

    def recover(result: RoundResult) -> None:
        asked.append(result)
        learner.worse = {}

    agent._on_round = recover
    summary = agent.run()
    assert [str(result.outcome) for result in summary.rounds] == ["declined", "accepted"]
    assert why in stand_in.declined[0][1]
    assert why in summary.rounds[0].note


def test_figures_that_are_not_finite_are_left_out_and_the_update_counts(stand_in: StandIn, tmp_path: Path) -> None:
    agent = agent_of(stand_in, tmp_path, Counter(evaluate=lambda c: {"loss": float("nan"), "gain": np.float32(1.5)}))
    summary = agent.run()
    assert [str(result.outcome) for result in summary.rounds] == ["accepted"] * 2
    assert stand_in.reports[1, "dev_1"]["metrics"] == {"gain": 1.5}


def test_wider_numbers_than_the_models_are_sent_in_its_type(stand_in: StandIn, tmp_path: Path) -> None:
    agent_of(stand_in, tmp_path, Counter(parameters=lambda c: {"w": c.state.astype(np.float64)})).run()
    assert load(stand_in.updates[1, "dev_1"][0])["w"].dtype == np.float32


def test_learner_too_slow_for_round_gets_note(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.work = {"deadline_at": time.time() - 1.0}
    stand_in.faults[UPDATE] = [problem(409, "round_over", "round 1 is over")]
    summary = agent_of(stand_in, tmp_path, Counter()).run()
    assert str(summary.rounds[0].outcome) == "late"
    assert "longer than the round was open: ask for fewer epochs or more time" in summary.rounds[0].note


def test_samples_follow_data_that_grows_and_shrinks(stand_in: StandIn, tmp_path: Path) -> None:
    """A round may open before the platform learns the number, so more samples count from the round after."""
    stand_in.rounds = 4
    learner, sizes = Counter(), iter([9, 9, 2, 2])
    agent = agent_of(stand_in, tmp_path, learner)
    agent._on_round = lambda result: setattr(learner, "held", next(sizes))
    agent.run()
    assert [stand_in.reports[number, "dev_1"]["weight"] for number in (1, 2, 3, 4)] == [5, 5, 9, 2]
    assert stand_in.enrolled == {"dev_1": 2}


def test_a_dataset_that_shrinks_while_it_is_read_declines_the_round(stand_in: StandIn, tmp_path: Path) -> None:
    class Shrinking:
        size = 5

        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if index >= self.size:
                raise IndexError(f"sample {index} of {self.size}")
            return torch.ones(3), torch.ones(())

    class Dot(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(3))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs @ self.w

    data: Any = Shrinking()
    agent = agent_of(
        stand_in, tmp_path, TorchLearner(Dot(), data, loss=torch.nn.functional.mse_loss), on_error="continue"
    )
    data.size = 2
    agent._on_round = lambda result: setattr(data, "size", 5)
    assert [str(result.outcome) for result in agent.run().rounds] == ["declined", "accepted"]
    assert "IndexError: sample 2 of 2" in stand_in.declined[0][1]


def test_empty_device_cannot_join_and_learns_why(stand_in: StandIn, tmp_path: Path) -> None:
    learner = Counter()
    learner.held = 0
    with pytest.raises(BadLearner, match="no training samples now"):
        agent_of(stand_in, tmp_path, learner)
    assert stand_in.enrolled == {}


def test_nothing_is_registered_before_everything_given_makes_sense(stand_in: StandIn, tmp_path: Path) -> None:
    def register(**options: Any) -> Agent:
        return Agent.register(stand_in.url, "t", name="phone", home=tmp_path / "new", **options)

    with pytest.raises(TypeError, match="lerner"):
        register(lerner=Counter())
    with pytest.raises(ValueError, match="give a learner, or model and data"):
        register(learner=Counter(), loss=torch.nn.functional.mse_loss)
    with pytest.raises(LearnerFailed, match="parameters failed: KeyError"):
        register(learner=Counter(parameters=fail(KeyError("w"))))
    with pytest.raises(WrongModel, match="fits no tensor"):
        register(learner=TorchLearner(torch.nn.Linear(1, 1), [], exchange="lora"))
    with pytest.raises(ValueError, match="poll_seconds"):
        register(learner=Counter(), poll_seconds=99)
    assert not stand_in.registered


def test_an_agent_runs_again_and_from_a_running_event_loop(stand_in: StandIn, tmp_path: Path) -> None:
    """As from a notebook, whose cells run inside a loop."""
    agent = agent_of(stand_in, tmp_path, Counter())

    async def cells() -> tuple[str, str]:
        first = await agent.arun()
        second = agent.run()  # blocks the loop, as a cell does
        return str(first), str(second)

    first, second = asyncio.run(cells())
    assert first == "2 of 2 rounds delivered; tsk_1 finished"
    assert second == "0 of 0 rounds delivered; tsk_1 finished"


def test_a_cancelled_agent_has_stopped_and_can_go_on(stand_in: StandIn, tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait(learner: Counter) -> None:
        began.set()
        assert go_on.wait(60)

    agent = agent_of(stand_in, tmp_path, Counter(train=wait), poll_seconds=0.5)

    async def cell() -> None:
        running = asyncio.ensure_future(agent.arun())
        await asyncio.to_thread(began.wait, 60)
        running.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cell())
    assert agent.run().tasks == {"tsk_1": "finished"}
