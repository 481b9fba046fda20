"""The Python agent as `coterie conformance` starts it, configured by environment variables."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from coterie.agent.agent import Agent
from coterie.agent.cache import BlobCache
from coterie.agent.home import DeviceHome
from coterie.privacy.ledger import Limit


def main() -> None:
    """Run one group of cases."""
    home, draw = Path(os.environ["COTERIE_HOME"]), torch.Generator().manual_seed(4)
    inputs = torch.rand(96, 64, generator=draw)
    agent = Agent.register(
        os.environ["COTERIE_URL"],
        os.environ["COTERIE_TOKEN"],
        name=os.environ["COTERIE_NAME"],
        home=home,
        model=torch.nn.Linear(64, 10),
        data=(inputs, inputs[:, :10].argmax(dim=1)),
        cache=BlobCache(home / "cache"),
        limit=Limit(epsilon=1e6, delta=1e-5, unit="device", allow_raw=True),
    )
    invitation = os.environ["COTERIE_INVITATION"]
    DeviceHome(home).admit(invitation)
    agent.join(os.environ["COTERIE_TASK"])
    print(agent.run())


if __name__ == "__main__":
    main()
