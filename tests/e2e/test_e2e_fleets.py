"""A fleet on the real platform does what agents do: its noise is charged, its letters travel, its clusters finish."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.agent.fleet import Fleet, FleetSummary
from coterie.learning.numpy_learner import NumpyLearner
from tests.e2e.real_platform import RealPlatform

START = {"slope": np.zeros(1), "shift": np.zeros(1)}


def line_of(number: int) -> NumpyLearner:
    """y = 2x + 1 with other x on each device."""
    inputs = np.random.default_rng(number).standard_normal(30)

    def residual(p: Any, x: Any, y: Any) -> Any:
        return p["slope"] * x + p["shift"] - y

    return NumpyLearner(
        START,
        (inputs, 2.0 * inputs + 1.0),
        losses=lambda p, x, y: residual(p, x, y) ** 2,
        gradients=lambda p, x, y: {
            "slope": (2 * residual(p, x, y) * x)[:, None],
            "shift": (2 * residual(p, x, y))[:, None],
        },
    )


def fly(platform: RealPlatform, folder: Path, name: str, devices: int = 4, **specification: Any) -> FleetSummary:
    from safetensors.numpy import save

    task = platform.admin.create_task(
        name=name,
        model_digests=[platform.admin.upload_model(save(START))],
        rounds=2,
        min_devices=devices,
        round_seconds=60.0,
        auto_start=True,
        **specification,
    )
    token = platform.admin.issue_token(platform.admin.create_owner(f"owner {name}").id, uses=devices).token
    fleet = Fleet.register(
        platform.processes.url, token, [line_of(item) for item in range(devices)], folder=folder, prefix=name,
        poll_seconds=2.0,
    )  # fmt: skip
    assert fleet.join(task.id) == task.id
    return fleet.run()


def test_uniform_noise_is_added_and_charged(shared_platform: RealPlatform, tmp_path: Path) -> None:
    """Multiplier 50 for two rounds: ε is small but not 0, and no figure goes beside the noise."""
    summary = fly(
        shared_platform, tmp_path, "fleet-noise", preset="fedavg", privacy="uniform",
        parameters={"privacy": {"noise_multiplier": 50.0}},
    )  # fmt: skip
    assert (summary.state, summary.outcomes) == ("finished", {"accepted": 8})
    assert 0.0 < summary.epsilon < 1.0
    assert "ε = 0." in str(summary)


def test_a_fleet_sells_its_privacy(shared_platform: RealPlatform, tmp_path: Path) -> None:
    """What a market hides is one example, so that is what the simulated owners' limits are about."""
    admin = shared_platform.admin
    admin.deposit(admin.me().subject, 100_000_000, key="fleet-market")
    summary = fly(
        shared_platform, tmp_path, "fleet-market", preset="market", escrow_microcredits=50_000_000,
        training={"learning_rate": 0.1, "clip_norm": 1.0},
    )  # fmt: skip
    assert (summary.state, summary.outcomes) == ("finished", {"accepted": 8}), summary.reasons
    assert 0.0 < summary.epsilon < math.inf


@pytest.mark.parametrize("topology", ["clusters", "mesh"])
def test_letters_travel_within_a_fleet(shared_platform: RealPlatform, tmp_path: Path, topology: str) -> None:
    """The devices of one owner know each other, so that they cluster or mesh without noise."""
    summary = fly(
        shared_platform, tmp_path, f"fleet-{topology}", topology=topology, privacy="none", incentive="none",
        training={"learning_rate": 0.1},
    )  # fmt: skip
    assert summary.state == "finished", summary.reasons
    assert summary.outcomes == {"accepted": 8}, summary.reasons
