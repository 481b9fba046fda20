"""A mesh device of the tests, in its own process: `python -m tests.e2e.mesh_device HOME TASK SEED`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from coterie.agent.agent import Agent
from coterie.learning.training import single_threaded
from coterie.privacy.ledger import Limit


def make_model() -> torch.nn.Module:
    """A linear model of 4 inputs and 3 classes, starting from 0."""
    module = torch.nn.Linear(4, 3)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()
    return module


def main() -> None:
    """Joins the task and works until it ends."""
    single_threaded()
    draw = torch.Generator().manual_seed(int(sys.argv[3]))
    inputs = torch.randn(60, 4, generator=draw)
    data = (inputs, inputs[:, :3].argmax(dim=1))
    limit = Limit(100.0, 1e-5, allow_raw=True)
    public = torch.randn(60, 4, generator=draw)
    known = (public, public[:, :3].argmax(dim=1))
    home, model = Path(sys.argv[1]), make_model()
    agent = Agent(home, model, data, test_data=known, public_test_data=True, limit=limit, heartbeat_seconds=2.0)
    agent.join(sys.argv[2])
    print(agent.run())


if __name__ == "__main__":
    main()
