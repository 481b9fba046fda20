"""Running statistics: left out by exchange, averaged as values in the clear, never noised."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.numpy import load

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.learning.models import is_statistic
from coterie.learning.torch_learner import TorchLearner
from coterie.learning.training import Exchange, model_bytes, seeded
from coterie.privacy.ledger import Limit
from tests.e2e.stand_in import StandIn

LIMIT = Limit(99.0, 1e-5, "device", allow_raw=True)


def module() -> torch.nn.Module:
    with seeded(1):
        return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 3))


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(30, 4, generator=torch.Generator().manual_seed(2))
    return inputs, inputs[:, :3].argmax(dim=1)


def agent_of(stand_in: StandIn, home: Path, exchange: Exchange) -> Agent:
    learner = TorchLearner(module(), samples(), exchange=exchange)
    agent = Agent.register(
        stand_in.url, "t", name="p", home=home, learner=learner, cache=BlobCache(home / "c"), limit=LIMIT
    )
    agent.join("tiny")
    return agent


def test_statistics_are_known_by_torchs_names() -> None:
    assert {name for name in load(model_bytes(module())) if is_statistic(name)} == {"1.running_mean", "1.running_var"}
    assert not [name for name in load(model_bytes(module(), "trainable")) if is_statistic(name)]


def test_device_declines_to_noise_statistics_and_noises_model_without_them(tmp_path: Path) -> None:
    work = {"privacy": "uniform", "noise_multiplier": 5.0}
    with StandIn(model_bytes(module()), rounds=1) as server:
        server.work = work
        summary = agent_of(server, tmp_path / "a", "all").run()
        assert [str(result.outcome) for result in summary.rounds] == ["declined"]
        assert "running statistics (1.running_mean)" in server.declined[0][1]
    with StandIn(model_bytes(module(), "trainable"), rounds=1) as server:
        server.work = work
        summary = agent_of(server, tmp_path / "b", "trainable").run()
        assert [str(result.outcome) for result in summary.rounds] == ["accepted"]


def test_statistics_travel_as_changes_whose_mean_is_the_values_mean(tmp_path: Path) -> None:
    with StandIn(model_bytes(module()), rounds=1, training={"epochs": 3}) as server:
        agent = agent_of(server, tmp_path, "all")
        agent.run()
        change = load(server.updates[1, "dev_1"][0])
        assert agent.learner is not None
        held = agent.learner.parameters()
    before = load(model_bytes(module()))
    for name in ("1.running_mean", "1.running_var"):
        assert before[name] + change[name] == pytest.approx(held[name], abs=1e-6)
        assert change[name].any()
