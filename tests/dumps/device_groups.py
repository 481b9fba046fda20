"""Who plays in a dump: the tasks, their devices, and how each device is made again from its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.privacy.ledger import Limit

ROUNDS, HELD_ROUND = 3, 2
"""Every task has three rounds and is stopped in the second."""
MILLION = 1_000_000


@dataclass(frozen=True)
class DeviceGroup:
    """A task, its devices, what each of them allows, and which of them have met before."""

    task: str
    devices: tuple[str, ...]
    specification: dict[str, Any]
    limit: Limit
    ties: tuple[tuple[str, str], ...] = ()
    private: dict[str, Any] = field(default_factory=dict)


DEVICE_GROUPS = (
    DeviceGroup(
        "plain",
        ("plain-1", "plain-2", "plain-3", "plain-4"),
        specification={"preset": "fedavg"},
        limit=Limit(100.0, 1e-5, allow_raw=True),
    ),
    DeviceGroup(
        "clusters",
        ("head", "ann", "ben", "cas", "stranger"),
        specification={
            "preset": "clusters",
            "training": {"clip_norm": 1.0},
            "parameters": {"pricing": {"credits_per_point": 1.0}},
            "escrow_microcredits": 1000 * MILLION,
        },
        limit=Limit(1e6, 1e-5, "device", allow_raw=True),
        ties=(("head", "ann"), ("head", "ben"), ("head", "cas"), ("ann", "cas")),
    ),
    DeviceGroup(
        "market",
        ("seller-1", "seller-2", "seller-3"),
        specification={
            "preset": "market",
            "privacy_unit": "example",
            "parameters": {"pricing": {"accuracy_weight": 0.02}},
            "escrow_microcredits": 4 * MILLION,
        },
        limit=Limit(1e4, 1e-5),
        private={"costs": {"quadratic": 1.5, "linear": 0.04, "fixed": 0.0}},
    ),
)


def agent_of(home: Path, name: str, cache: BlobCache, **options: Any) -> Agent:
    """The agent of a device of the group: a linear model of 4 inputs and 5 classes, and samples drawn for its name."""
    everybody = [device for group in DEVICE_GROUPS for device in group.devices]
    draw = torch.Generator().manual_seed(everybody.index(name))
    inputs = torch.randn(40, 4, generator=draw)
    data = (inputs, inputs.argmax(dim=1))
    return Agent(home, torch.nn.Linear(4, 5), data, cache=cache, poll_seconds=1.0, **options)
