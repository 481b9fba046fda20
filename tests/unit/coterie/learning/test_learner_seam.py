"""What is on the device's side of the seam: any code with five names, in every way of learning that it can do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.agent.report import Tensors
from coterie.errors import BadLearner, NotFinite
from coterie.learning.learner import Gradients, Guarded, Indices, Learner
from coterie.learning.numpy_learner import NumpyLearner
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training_config import Instructions
from coterie.privacy.clipping import Norm
from tests.e2e.stand_in import StandIn

START = {"slope": np.zeros(1), "shift": np.zeros(())}


class Mean:
    """Five names and nothing else: moves its one number to the mean of its samples."""

    def __init__(self, values: list[float]) -> None:
        self.values, self.state, self.received = values, {"mean": np.zeros(1)}, list[Instructions]()

    @property
    def samples(self) -> int:
        return len(self.values)

    def parameters(self) -> Tensors:
        return {"mean": self.state["mean"].copy()}

    def load(self, tensors: Tensors) -> None:
        self.state = {"mean": np.array(tensors["mean"])}

    def train(self, instructions: Instructions, seed: int) -> None:
        self.received.append(instructions)
        self.state["mean"] += instructions.learning_rate * (np.mean(self.values) - self.state["mean"])

    def evaluate(self) -> Mapping[str, float]:
        return {"distance": abs(float(self.state["mean"][0]) - float(np.mean(self.values)))}


def line_of(samples: int, random: int = 0, data: Any = None) -> NumpyLearner:
    draw = np.random.default_rng(random)
    inputs = draw.standard_normal(samples)
    given = data or (inputs, 2.0 * inputs + 1.0)

    def residual(p: Mapping[str, Any], x: Any, y: Any) -> Any:
        return p["slope"][0] * x + p["shift"] - y

    return NumpyLearner(
        START, given,
        losses=lambda p, x, y: residual(p, x, y) ** 2,
        gradients=lambda p, x, y: {"slope": (2 * residual(p, x, y) * x)[:, None], "shift": 2 * residual(p, x, y)},
        metrics={"bias": lambda p, x, y: float(np.mean(residual(p, x, y)))},
    )  # fmt: skip


def test_a_learner_of_five_names_takes_part_in_a_task(tmp_path: Path) -> None:
    learner = Mean([1.0, 3.0])
    training = {"learning_rate": 0.5, "custom": {"mine": [1]}}
    with StandIn(save({"mean": np.zeros(1)}), rounds=3, training=training) as server:
        agent = Agent.register(
            server.url, "t", name="meter", home=tmp_path, learner=learner, cache=BlobCache(tmp_path / "c")
        )
        agent.join("tiny")
        summary = agent.run()
    assert [result.outcome for result in summary.rounds] == ["accepted"] * 3
    assert [result.metrics["distance"] for result in summary.rounds] == pytest.approx([2.0, 1.0, 0.5])
    assert learner.received[0].custom == {"mine": [1]}
    assert server.enrolled == {"dev_1": 2}
    assert not isinstance(learner, Gradients)


def test_numpy_and_torch_take_the_same_steps() -> None:
    """One batch an epoch, so that their orders do not matter."""
    inputs = np.random.default_rng(4).standard_normal(20)
    data = (inputs, 2.0 * inputs + 1.0)
    model = torch.nn.Linear(1, 1, dtype=torch.float64)
    other = TorchLearner(
        model, (torch.from_numpy(data[0])[:, None], torch.from_numpy(data[1])[:, None]),
        loss=torch.nn.functional.mse_loss,
    )  # fmt: skip
    other.load({"weight": np.zeros((1, 1)), "bias": np.zeros(1)})
    own = line_of(20, data=data)
    instructions = Instructions(
        epochs=7, batch_size=20, learning_rate=0.1, momentum=0.5, weight_decay=0.01, proximal=0.2
    )
    for learner in (own, other):
        learner.train(instructions, 1)
    assert own.parameters()["slope"][0] == pytest.approx(other.parameters()["weight"][0, 0])
    assert own.parameters()["shift"] == pytest.approx(other.parameters()["bias"][0])
    assert own.evaluate()["loss"] == pytest.approx(other.evaluate()["loss"])


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_numpy_and_torch_clip_the_same_gradients(norm: Norm) -> None:
    inputs = np.random.default_rng(4).standard_normal(20)
    data = (inputs, 2.0 * inputs + 1.0)
    model = torch.nn.Linear(1, 1, dtype=torch.float64)
    other = TorchLearner(
        model, (torch.from_numpy(data[0])[:, None], torch.from_numpy(data[1])[:, None]),
        loss=torch.nn.functional.mse_loss,
    )  # fmt: skip
    other.load({"weight": np.zeros((1, 1)), "bias": np.zeros(1)})
    own = line_of(20, data=data)
    some = np.array([1, 5, 7])
    for bound in (0.5, float("inf")):
        here, there = own.gradient_sum(some, bound, norm), other.gradient_sum(some, bound, norm)
        assert here["slope"][0] == pytest.approx(there["weight"][0, 0])
        assert here["shift"] == pytest.approx(there["bias"][0])
    assert own.loss_of(some) == pytest.approx(other.loss_of(some))


def test_sample_whose_gradient_is_not_finite_moves_clipped_sum_by_nothing() -> None:
    inputs = np.array([1.0, np.nan, 2.0])
    own = line_of(3, data=(inputs, np.array([3.0, 1.0, 5.0])))
    here, others = own.gradient_sum(np.arange(3), 0.5), own.gradient_sum(np.array([0, 2]), 0.5)
    assert here["slope"] == pytest.approx(others["slope"])
    assert here["shift"] == pytest.approx(others["shift"])


def test_of_a_learner_that_does_not_see_to_it_samples_are_taken_one_by_one() -> None:
    """A round declined because of one sample would tell of it, and zeros for all of them move more than it may."""

    class Careless(Mean):
        def trained(self) -> tuple[str, ...]:
            return ("mean",)

        def loss_of(self, indices: Indices) -> float:
            return 0.0

        def gradient_sum(self, indices: Indices, bound: float, norm: Norm = "l2") -> Tensors:
            return {"mean": np.array([np.sum([np.clip(self.values[i], -bound, bound) for i in indices])])}

    guarded = Guarded(Careless([1.0, np.nan, 5.0]))
    assert guarded.gradient_sum(np.arange(3), 2.0)["mean"].tolist() == [3.0]
    assert guarded.gradient_sum(np.array([1]), 2.0)["mean"].tolist() == [0.0]
    with pytest.raises(NotFinite):
        guarded.gradient_sum(np.arange(3), float("inf"))


def test_learner_without_gradients_declines_strategies_that_need_them() -> None:
    guarded = Guarded(Mean([1.0]))
    with pytest.raises(BadLearner, match="gradients of single samples, which Mean does not give; add trained"):
        guarded.trained()
    with pytest.raises(BadLearner, match="gradients"):
        guarded.gradient_sum(np.arange(1), 1.0)
    gives: Learner = line_of(3)
    assert Guarded(gives).trained() == ("slope", "shift")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from pathlib import Path
from coterie import Agent, NumpyLearner
from coterie.agent.cache import BlobCache
from tests.unit.coterie.learning.seam_without_torch import line
agent = Agent.register(sys.argv[1], "t", name="sensor", home=sys.argv[2], learner=line(),
                       cache=BlobCache(Path(sys.argv[2]) / "c"))
agent.join("tiny")
summary = agent.run()
print([str(result.outcome) for result in summary.rounds], summary.rounds[-1].metrics["loss"] < 0.01)
"""


def test_a_numpy_learner_runs_where_there_is_no_torch(tmp_path: Path) -> None:
    training = {"learning_rate": 0.1, "epochs": 10, "batch_size": 5}
    with StandIn(save(START), rounds=3, training=training) as server:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, server.url, str(tmp_path)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert result.stdout.strip() == "['accepted', 'accepted', 'accepted'] True", result.stderr


def test_either_a_learner_or_a_model_is_given(tmp_path: Path) -> None:
    with StandIn(save({"mean": np.zeros(1)})) as server:
        Agent.register(server.url, "t", name="m", home=tmp_path, learner=Mean([1.0])).close()
        with pytest.raises(ValueError, match="give a learner, or model and data"):
            Agent(tmp_path, torch.nn.Linear(1, 1), learner=Mean([1.0]))
